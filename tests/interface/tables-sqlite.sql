CREATE TABLE admin_sign_out (
	token_id TEXT NOT NULL,
	not_before INTEGER NOT NULL,
	CONSTRAINT pk_admin_sign_out PRIMARY KEY (token_id)
)
CREATE TABLE allowlist_version (
	id INTEGER NOT NULL,
	digest TEXT NOT NULL,
	source TEXT NOT NULL,
	content TEXT NOT NULL,
	valid BOOLEAN NOT NULL,
	error TEXT,
	loaded_at INTEGER NOT NULL,
	default_events TEXT,
	CONSTRAINT pk_allowlist_version PRIMARY KEY (id)
)
CREATE TABLE benchmark_point (
	series_id INTEGER NOT NULL,
	repository_id INTEGER NOT NULL,
	object_id INTEGER NOT NULL,
	day INTEGER NOT NULL,
	at INTEGER NOT NULL,
	trusted BOOLEAN NOT NULL,
	head_sha TEXT NOT NULL,
	n INTEGER NOT NULL,
	median FLOAT,
	status TEXT NOT NULL,
	min FLOAT,
	max FLOAT,
	stdev FLOAT,
	target FLOAT,
	extra JSON,
	CONSTRAINT pk_benchmark_point PRIMARY KEY (series_id, repository_id, object_id)
)
CREATE INDEX ix_benchmark_point_day ON benchmark_point (day)
CREATE INDEX ix_benchmark_point_head_sha ON benchmark_point (repository_id, head_sha)
CREATE INDEX ix_benchmark_point_series ON benchmark_point (repository_id, series_id, at)
CREATE INDEX ix_benchmark_point_source ON benchmark_point (repository_id, object_id)
CREATE TABLE benchmark_series (
	benchmark TEXT NOT NULL,
	model TEXT NOT NULL,
	metric TEXT NOT NULL,
	device TEXT NOT NULL,
	mode TEXT NOT NULL,
	dtype TEXT NOT NULL,
	backend TEXT NOT NULL,
	arch TEXT NOT NULL,
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	digest BLOB NOT NULL,
	CONSTRAINT uq_benchmark_series UNIQUE (digest)
)
CREATE INDEX ix_benchmark_series_model ON benchmark_series (benchmark, model, metric)
CREATE TABLE benchmark_trend (
	repository_id INTEGER NOT NULL,
	series_id INTEGER NOT NULL,
	at INTEGER NOT NULL,
	head_sha TEXT NOT NULL,
	value FLOAT,
	status TEXT NOT NULL,
	usual FLOAT,
	change FLOAT,
	step_change FLOAT,
	step_at INTEGER,
	step_sha TEXT,
	worse BOOLEAN NOT NULL,
	CONSTRAINT pk_benchmark_trend PRIMARY KEY (repository_id, series_id)
)
CREATE INDEX ix_benchmark_trend_at ON benchmark_trend (repository_id, at)
CREATE TABLE bisect (
	id TEXT NOT NULL,
	upstream_repo TEXT NOT NULL,
	repository_id INTEGER NOT NULL,
	branch TEXT NOT NULL,
	backend TEXT NOT NULL,
	job TEXT NOT NULL,
	test TEXT NOT NULL,
	signature TEXT NOT NULL,
	good_sha TEXT NOT NULL,
	bad_sha TEXT NOT NULL,
	state TEXT NOT NULL,
	why TEXT NOT NULL,
	requested_by TEXT NOT NULL,
	reason TEXT NOT NULL,
	comment_on INTEGER,
	flaky_rate FLOAT NOT NULL,
	bad_signature TEXT,
	bad_kind TEXT,
	moved INTEGER NOT NULL,
	used INTEGER NOT NULL,
	waits_until INTEGER,
	culprit_sha TEXT,
	parent_sha TEXT,
	confidence TEXT,
	suspects JSON,
	good_runs INTEGER NOT NULL,
	bad_runs INTEGER NOT NULL,
	pr_number INTEGER,
	author TEXT,
	title TEXT,
	files JSON,
	mended_sha TEXT,
	created_at INTEGER NOT NULL,
	updated_at INTEGER NOT NULL,
	ended_at INTEGER,
	CONSTRAINT pk_bisect PRIMARY KEY (id)
)
CREATE INDEX ix_bisect_culprit ON bisect (culprit_sha, repository_id)
CREATE INDEX ix_bisect_repository ON bisect (repository_id, created_at)
CREATE UNIQUE INDEX ux_bisect_open ON bisect (repository_id, branch, backend, job, test, signature) WHERE state IN ('running', 'waiting')
CREATE TABLE bisect_comment (
	bisect_id TEXT NOT NULL,
	upstream_repo TEXT NOT NULL,
	pr_number INTEGER NOT NULL,
	comment_id INTEGER,
	digest TEXT NOT NULL,
	writing_until INTEGER NOT NULL,
	lost_until INTEGER NOT NULL,
	CONSTRAINT pk_bisect_comment PRIMARY KEY (bisect_id)
)
CREATE TABLE bisect_step (
	bisect_id TEXT NOT NULL,
	number INTEGER NOT NULL,
	sha TEXT NOT NULL,
	purpose TEXT NOT NULL,
	delivery_id TEXT,
	dispatch_id TEXT,
	run_id INTEGER,
	from_attempt INTEGER,
	tag TEXT,
	outcome TEXT,
	detail TEXT,
	created_at INTEGER NOT NULL,
	sent_at INTEGER,
	ended_at INTEGER,
	CONSTRAINT pk_bisect_step PRIMARY KEY (bisect_id, number)
)
CREATE INDEX ix_bisect_step_dispatch ON bisect_step (dispatch_id)
CREATE INDEX ix_bisect_step_open ON bisect_step (bisect_id) WHERE outcome IS NULL
CREATE INDEX ix_bisect_step_sent ON bisect_step (created_at)
CREATE TABLE branch_commit (
	repository_id INTEGER NOT NULL,
	branch TEXT NOT NULL,
	sha TEXT NOT NULL,
	parent TEXT,
	replaces TEXT,
	at INTEGER NOT NULL,
	title TEXT NOT NULL,
	author TEXT,
	pr_number INTEGER,
	folded INTEGER NOT NULL,
	gone BOOLEAN NOT NULL,
	listed BOOLEAN DEFAULT 0 NOT NULL,
	CONSTRAINT pk_branch_commit PRIMARY KEY (repository_id, branch, sha)
)
CREATE INDEX ix_branch_commit_at ON branch_commit (repository_id, branch, at, sha)
CREATE INDEX ix_branch_commit_sha ON branch_commit (sha, repository_id)
CREATE TABLE branch_rule (
	repository_id INTEGER NOT NULL,
	branch TEXT NOT NULL,
	contexts JSON,
	asked_at INTEGER NOT NULL,
	CONSTRAINT pk_branch_rule PRIMARY KEY (repository_id, branch)
)
CREATE TABLE check_run (
	repository_id INTEGER NOT NULL,
	repo TEXT NOT NULL,
	received_at INTEGER NOT NULL,
	id INTEGER NOT NULL,
	node_id TEXT,
	name TEXT,
	external_id TEXT,
	head_sha TEXT,
	status TEXT,
	conclusion TEXT,
	check_suite_id INTEGER,
	app_id INTEGER,
	app_slug TEXT,
	output_title TEXT,
	output_summary TEXT,
	output_annotations_count INTEGER,
	pull_requests JSON,
	details_url TEXT,
	html_url TEXT,
	started_at INTEGER,
	completed_at INTEGER,
	deleted_at INTEGER,
	merge_state JSON NOT NULL,
	CONSTRAINT pk_check_run PRIMARY KEY (repository_id, id)
)
CREATE INDEX ix_check_run_head_sha ON check_run (head_sha)
CREATE INDEX ix_check_run_in_flight ON check_run (received_at) WHERE status != 'completed'
CREATE INDEX ix_check_run_repo ON check_run (lower(repo), id)
CREATE TABLE check_suite (
	repository_id INTEGER NOT NULL,
	repo TEXT NOT NULL,
	received_at INTEGER NOT NULL,
	id INTEGER NOT NULL,
	node_id TEXT,
	head_branch TEXT,
	head_sha TEXT,
	status TEXT,
	conclusion TEXT,
	"before" TEXT,
	"after" TEXT,
	app_id INTEGER,
	app_slug TEXT,
	pull_requests JSON,
	latest_check_runs_count INTEGER,
	created_at INTEGER,
	updated_at INTEGER,
	deleted_at INTEGER,
	merge_state JSON NOT NULL,
	CONSTRAINT pk_check_suite PRIMARY KEY (repository_id, id)
)
CREATE INDEX ix_check_suite_repo ON check_suite (lower(repo), id)
CREATE TABLE ci_artifact (
	repository_id INTEGER NOT NULL,
	id INTEGER NOT NULL,
	run_id INTEGER NOT NULL,
	run_attempt INTEGER NOT NULL,
	job_id INTEGER,
	name TEXT NOT NULL,
	kind TEXT NOT NULL,
	size_in_bytes INTEGER NOT NULL,
	digest TEXT,
	created_at INTEGER,
	updated_at INTEGER,
	expires_at INTEGER,
	expired BOOLEAN NOT NULL,
	head_sha TEXT NOT NULL,
	trusted BOOLEAN NOT NULL,
	flags JSON NOT NULL,
	CONSTRAINT pk_ci_artifact PRIMARY KEY (repository_id, id)
)
CREATE INDEX ix_ci_artifact_head_sha ON ci_artifact (head_sha, repository_id, id)
CREATE INDEX ix_ci_artifact_name ON ci_artifact (repository_id, name, id)
CREATE INDEX ix_ci_artifact_run ON ci_artifact (repository_id, run_id, id)
CREATE TABLE ci_broken (
	repository_id INTEGER NOT NULL,
	branch TEXT NOT NULL,
	column_group TEXT NOT NULL,
	broken INTEGER NOT NULL,
	CONSTRAINT pk_ci_broken PRIMARY KEY (repository_id, branch, column_group)
)
CREATE TABLE ci_budget (
	account TEXT NOT NULL,
	calls FLOAT NOT NULL,
	bytes FLOAT NOT NULL,
	at INTEGER NOT NULL,
	minutes JSON NOT NULL,
	CONSTRAINT pk_ci_budget PRIMARY KEY (account)
)
CREATE TABLE ci_cache_day (
	repository_id INTEGER NOT NULL,
	base_name TEXT NOT NULL,
	day INTEGER NOT NULL,
	jobs INTEGER NOT NULL,
	seconds INTEGER NOT NULL,
	hits JSON NOT NULL,
	misses JSON NOT NULL,
	errors INTEGER NOT NULL,
	not_cacheable INTEGER NOT NULL,
	reasons JSON NOT NULL,
	CONSTRAINT pk_ci_cache_day PRIMARY KEY (repository_id, base_name, day)
)
CREATE TABLE ci_cache_stats (
	repository_id INTEGER NOT NULL,
	object_id INTEGER NOT NULL,
	tool TEXT NOT NULL,
	base_name TEXT NOT NULL,
	day INTEGER NOT NULL,
	at INTEGER NOT NULL,
	trusted BOOLEAN NOT NULL,
	head_sha TEXT NOT NULL,
	requests INTEGER NOT NULL,
	executed INTEGER NOT NULL,
	hits JSON NOT NULL,
	misses JSON NOT NULL,
	errors INTEGER NOT NULL,
	not_cacheable INTEGER NOT NULL,
	reasons JSON NOT NULL,
	write_seconds FLOAT NOT NULL,
	read_seconds FLOAT NOT NULL,
	version TEXT NOT NULL,
	raw JSON,
	CONSTRAINT pk_ci_cache_stats PRIMARY KEY (repository_id, object_id, tool)
)
CREATE INDEX ix_ci_cache_stats_build ON ci_cache_stats (repository_id, base_name, day)
CREATE INDEX ix_ci_cache_stats_day ON ci_cache_stats (day)
CREATE TABLE ci_cache_trend (
	repository_id INTEGER NOT NULL,
	base_name TEXT NOT NULL,
	language TEXT NOT NULL,
	at INTEGER NOT NULL,
	head_sha TEXT NOT NULL,
	hits INTEGER NOT NULL,
	misses INTEGER NOT NULL,
	rate FLOAT,
	usual FLOAT,
	fell_at INTEGER,
	fell_sha TEXT,
	CONSTRAINT pk_ci_cache_trend PRIMARY KEY (repository_id, base_name, language)
)
CREATE TABLE ci_cell (
	repository_id INTEGER NOT NULL,
	head_sha TEXT NOT NULL,
	column_id INTEGER NOT NULL,
	job_id INTEGER NOT NULL,
	numbered_column_id INTEGER,
	run_id INTEGER NOT NULL,
	attempt INTEGER NOT NULL,
	shard INTEGER NOT NULL,
	shards INTEGER NOT NULL,
	state SMALLINT NOT NULL,
	conclusion SMALLINT NOT NULL,
	queued_at INTEGER,
	started_at INTEGER,
	completed_at INTEGER,
	runner_label TEXT,
	signature TEXT,
	line TEXT,
	tests_failed INTEGER,
	failed_tests TEXT,
	failure_kind TEXT,
	held BOOLEAN DEFAULT 0 NOT NULL,
	other_id TEXT,
	url TEXT,
	CONSTRAINT pk_ci_cell PRIMARY KEY (repository_id, head_sha, column_id, job_id)
)
CREATE INDEX ix_ci_cell_job ON ci_cell (repository_id, job_id)
CREATE INDEX ix_ci_cell_queued_at ON ci_cell (repository_id, queued_at)
CREATE TABLE ci_column (
	id INTEGER NOT NULL,
	repository_id INTEGER NOT NULL,
	workflow TEXT NOT NULL,
	job TEXT NOT NULL,
	base_name TEXT NOT NULL,
	config TEXT NOT NULL,
	flags TEXT NOT NULL,
	source TEXT DEFAULT 'actions' NOT NULL,
	shown_as TEXT,
	seen INTEGER DEFAULT '0' NOT NULL,
	CONSTRAINT pk_ci_column PRIMARY KEY (id),
	CONSTRAINT uq_ci_column UNIQUE (repository_id, source, workflow, job)
)
CREATE TABLE ci_commit (
	repository_id INTEGER NOT NULL,
	head_sha TEXT NOT NULL,
	mark INTEGER NOT NULL,
	cells BLOB,
	outline BLOB,
	CONSTRAINT pk_ci_commit PRIMARY KEY (repository_id, head_sha)
)
CREATE TABLE ci_day (
	repository_id INTEGER NOT NULL,
	branch TEXT NOT NULL,
	day INTEGER NOT NULL,
	name TEXT NOT NULL,
	workflow TEXT NOT NULL,
	cells TEXT NOT NULL,
	seconds INTEGER NOT NULL,
	CONSTRAINT pk_ci_day PRIMARY KEY (repository_id, branch, day, name)
)
CREATE TABLE ci_disabled_day (
	repository_id INTEGER NOT NULL,
	day INTEGER NOT NULL,
	tests JSON NOT NULL,
	made_at INTEGER NOT NULL,
	CONSTRAINT pk_ci_disabled_day PRIMARY KEY (repository_id, day)
)
CREATE INDEX ix_ci_disabled_day_day ON ci_disabled_day (day)
CREATE TABLE ci_disabling (
	repository_id INTEGER NOT NULL,
	number INTEGER NOT NULL,
	kind TEXT NOT NULL,
	unstable BOOLEAN NOT NULL,
	title TEXT NOT NULL,
	author TEXT,
	url TEXT,
	listed BOOLEAN NOT NULL,
	entries JSON NOT NULL,
	problems JSON NOT NULL,
	created_at INTEGER,
	updated_at INTEGER,
	CONSTRAINT pk_ci_disabling PRIMARY KEY (repository_id, number)
)
CREATE TABLE ci_disabling_comment (
	repository_id INTEGER NOT NULL,
	number INTEGER NOT NULL,
	comment_id INTEGER,
	digest TEXT NOT NULL,
	writing_until INTEGER NOT NULL,
	lost_until INTEGER NOT NULL,
	CONSTRAINT pk_ci_disabling_comment PRIMARY KEY (repository_id, number)
)
CREATE TABLE ci_fetch (
	repository_id INTEGER NOT NULL,
	kind TEXT NOT NULL,
	object_id INTEGER NOT NULL,
	run_id INTEGER NOT NULL,
	run_attempt INTEGER NOT NULL,
	job_id INTEGER,
	state TEXT NOT NULL,
	tries INTEGER NOT NULL,
	due_at INTEGER,
	size INTEGER,
	sha256 TEXT,
	blob TEXT,
	parser TEXT,
	error TEXT,
	asked_at INTEGER NOT NULL,
	done_at INTEGER,
	CONSTRAINT pk_ci_fetch PRIMARY KEY (repository_id, kind, object_id)
)
CREATE INDEX ix_ci_fetch_asked_at ON ci_fetch (asked_at)
CREATE INDEX ix_ci_fetch_blob ON ci_fetch (blob) WHERE blob IS NOT NULL
CREATE INDEX ix_ci_fetch_run ON ci_fetch (repository_id, run_id, kind, object_id)
CREATE INDEX ix_ci_fetch_wanted ON ci_fetch (asked_at) WHERE state = 'wanted'
CREATE TABLE ci_line (
	repository_id INTEGER NOT NULL,
	branch TEXT NOT NULL,
	day INTEGER NOT NULL,
	place INTEGER NOT NULL,
	sha TEXT NOT NULL,
	verdict TEXT NOT NULL,
	red_seconds INTEGER,
	signal_seconds INTEGER,
	jobs INTEGER NOT NULL,
	reruns INTEGER NOT NULL,
	flaky INTEGER NOT NULL,
	cancelled_seconds INTEGER NOT NULL,
	seconds JSON NOT NULL,
	failures JSON,
	CONSTRAINT pk_ci_line PRIMARY KEY (repository_id, branch, day, place)
)
CREATE TABLE ci_list (
	repository_id INTEGER NOT NULL,
	name TEXT NOT NULL,
	etag TEXT NOT NULL,
	made_at INTEGER NOT NULL,
	body BLOB NOT NULL,
	gzipped BLOB NOT NULL,
	CONSTRAINT pk_ci_list PRIMARY KEY (repository_id, name)
)
CREATE TABLE ci_listing (
	repository_id INTEGER NOT NULL,
	run_id INTEGER NOT NULL,
	run_attempt INTEGER NOT NULL,
	passes INTEGER NOT NULL,
	artifacts INTEGER NOT NULL,
	state TEXT NOT NULL,
	error TEXT,
	at INTEGER NOT NULL,
	CONSTRAINT pk_ci_listing PRIMARY KEY (repository_id, run_id, run_attempt)
)
CREATE TABLE ci_log (
	repository_id INTEGER NOT NULL,
	job_id INTEGER NOT NULL,
	run_id INTEGER NOT NULL,
	run_attempt INTEGER NOT NULL,
	state TEXT NOT NULL,
	bytes INTEGER NOT NULL,
	lines INTEGER NOT NULL,
	longest_line INTEGER NOT NULL,
	sha256 TEXT NOT NULL,
	blob TEXT,
	first_at INTEGER,
	last_at INTEGER,
	fetched_at INTEGER NOT NULL,
	truncated BOOLEAN NOT NULL,
	secrets_masked INTEGER NOT NULL,
	head_sha TEXT NOT NULL,
	trusted BOOLEAN NOT NULL,
	first_error JSON,
	CONSTRAINT pk_ci_log PRIMARY KEY (repository_id, job_id)
)
CREATE INDEX ix_ci_log_fetched_at ON ci_log (fetched_at)
CREATE INDEX ix_ci_log_head_sha ON ci_log (head_sha, repository_id)
CREATE INDEX ix_ci_log_run ON ci_log (repository_id, run_id)
CREATE TABLE ci_metric (
	repository_id INTEGER NOT NULL,
	object_id INTEGER NOT NULL,
	seq INTEGER NOT NULL,
	metric TEXT NOT NULL,
	day INTEGER NOT NULL,
	at INTEGER NOT NULL,
	trusted BOOLEAN NOT NULL,
	config TEXT NOT NULL,
	"values" JSON NOT NULL,
	labels JSON NOT NULL,
	source TEXT NOT NULL,
	CONSTRAINT pk_ci_metric PRIMARY KEY (repository_id, object_id, seq)
)
CREATE INDEX ix_ci_metric_day ON ci_metric (repository_id, metric, day)
CREATE INDEX ix_ci_metric_of_day ON ci_metric (day)
CREATE TABLE ci_metric_day (
	repository_id INTEGER NOT NULL,
	metric TEXT NOT NULL,
	value_name TEXT NOT NULL,
	group_key TEXT NOT NULL,
	count INTEGER NOT NULL,
	sum FLOAT NOT NULL,
	min FLOAT NOT NULL,
	max FLOAT NOT NULL,
	sample JSON NOT NULL,
	day INTEGER NOT NULL,
	CONSTRAINT pk_ci_metric_day PRIMARY KEY (repository_id, metric, day, value_name, group_key)
)
CREATE TABLE ci_metric_trend (
	repository_id INTEGER NOT NULL,
	metric TEXT NOT NULL,
	value_name TEXT NOT NULL,
	last_day INTEGER NOT NULL,
	count INTEGER NOT NULL,
	recent FLOAT NOT NULL,
	"before" FLOAT,
	change FLOAT,
	since_day INTEGER,
	days JSON NOT NULL,
	CONSTRAINT pk_ci_metric_trend PRIMARY KEY (repository_id, metric, value_name)
)
CREATE INDEX ix_ci_metric_trend_change ON ci_metric_trend (repository_id, change)
CREATE TABLE ci_pull_closes (
	repository_id INTEGER NOT NULL,
	number INTEGER NOT NULL,
	head_sha TEXT NOT NULL,
	issues JSON NOT NULL,
	CONSTRAINT pk_ci_pull_closes PRIMARY KEY (repository_id, number)
)
CREATE TABLE ci_reclassified (
	repository_id INTEGER NOT NULL,
	ruleset TEXT NOT NULL,
	phase INTEGER NOT NULL,
	at INTEGER NOT NULL,
	job_id INTEGER NOT NULL,
	CONSTRAINT pk_ci_reclassified PRIMARY KEY (repository_id)
)
CREATE TABLE ci_ruleset (
	digest TEXT NOT NULL,
	source TEXT NOT NULL,
	content TEXT NOT NULL,
	valid BOOLEAN NOT NULL,
	error TEXT,
	rules INTEGER NOT NULL,
	loaded_at INTEGER NOT NULL,
	CONSTRAINT pk_ci_ruleset PRIMARY KEY (digest)
)
CREATE INDEX ix_ci_ruleset_source ON ci_ruleset (source, loaded_at)
CREATE TABLE ci_runner_day (
	repository_id INTEGER NOT NULL,
	label TEXT NOT NULL,
	day INTEGER NOT NULL,
	jobs INTEGER NOT NULL,
	queue BLOB NOT NULL,
	duration BLOB NOT NULL,
	CONSTRAINT pk_ci_runner_day PRIMARY KEY (repository_id, label, day)
)
CREATE TABLE ci_signature (
	signature TEXT NOT NULL,
	family TEXT NOT NULL,
	first_at INTEGER NOT NULL,
	last_at INTEGER NOT NULL,
	title TEXT NOT NULL,
	rule TEXT NOT NULL,
	kind TEXT NOT NULL,
	jobs_total INTEGER NOT NULL,
	issue_url TEXT,
	CONSTRAINT pk_ci_signature PRIMARY KEY (signature, family)
)
CREATE TABLE ci_signature_day (
	signature TEXT NOT NULL,
	family TEXT NOT NULL,
	day INTEGER NOT NULL,
	jobs INTEGER NOT NULL,
	prs INTEGER NOT NULL,
	trusted_jobs INTEGER NOT NULL,
	repos INTEGER NOT NULL,
	CONSTRAINT pk_ci_signature_day PRIMARY KEY (signature, family, day)
)
CREATE INDEX ix_ci_signature_day_day ON ci_signature_day (day, family)
CREATE TABLE ci_source (
	repository_id INTEGER NOT NULL,
	object_id INTEGER NOT NULL,
	run_id INTEGER NOT NULL,
	run_attempt INTEGER NOT NULL,
	job_id INTEGER NOT NULL,
	seconds INTEGER,
	repo TEXT NOT NULL,
	workflow TEXT NOT NULL,
	job_name TEXT NOT NULL,
	base_name TEXT NOT NULL,
	config TEXT NOT NULL,
	day INTEGER NOT NULL,
	at INTEGER NOT NULL,
	trusted BOOLEAN NOT NULL,
	head_sha TEXT NOT NULL,
	upstream_sha TEXT,
	upstream_repo TEXT,
	head_branch TEXT,
	pr_number INTEGER,
	kind TEXT NOT NULL,
	artifact TEXT NOT NULL,
	sha256 TEXT NOT NULL,
	records INTEGER NOT NULL,
	problems JSON NOT NULL,
	problem_count INTEGER NOT NULL,
	received_at INTEGER NOT NULL,
	CONSTRAINT pk_ci_source PRIMARY KEY (repository_id, object_id)
)
CREATE INDEX ix_ci_source_head_sha ON ci_source (head_sha)
CREATE INDEX ix_ci_source_received_at ON ci_source (received_at)
CREATE INDEX ix_ci_source_run ON ci_source (repository_id, run_id)
CREATE INDEX ix_ci_source_upstream_sha ON ci_source (upstream_sha)
CREATE TABLE ci_storage_day (
	repository_id INTEGER NOT NULL,
	day INTEGER NOT NULL,
	workflow TEXT NOT NULL,
	artifacts INTEGER NOT NULL,
	bytes INTEGER NOT NULL,
	CONSTRAINT pk_ci_storage_day PRIMARY KEY (repository_id, day, workflow)
)
CREATE TABLE ci_unstable (
	repository_id INTEGER NOT NULL,
	name TEXT NOT NULL,
	CONSTRAINT pk_ci_unstable PRIMARY KEY (repository_id, name)
)
CREATE TABLE ci_upload (
	id INTEGER NOT NULL,
	backend TEXT NOT NULL,
	backend_key TEXT NOT NULL,
	repository_id INTEGER NOT NULL,
	dispatch_id TEXT NOT NULL,
	event_type TEXT,
	commit_sha TEXT,
	kind TEXT NOT NULL,
	run_id TEXT NOT NULL,
	run_attempt INTEGER NOT NULL,
	workflow TEXT NOT NULL,
	job TEXT NOT NULL,
	name TEXT NOT NULL,
	size INTEGER NOT NULL,
	sha256 TEXT NOT NULL,
	blob TEXT NOT NULL,
	received_at INTEGER NOT NULL,
	CONSTRAINT pk_ci_upload PRIMARY KEY (id)
)
CREATE INDEX ix_ci_upload_backend_key ON ci_upload (backend_key, received_at)
CREATE INDEX ix_ci_upload_dispatch_id ON ci_upload (dispatch_id)
CREATE TABLE ci_verdict (
	repository_id INTEGER NOT NULL,
	job_id INTEGER NOT NULL,
	ruleset TEXT NOT NULL,
	rank INTEGER NOT NULL,
	current BOOLEAN NOT NULL,
	rule TEXT,
	kind TEXT NOT NULL,
	line TEXT,
	line_num INTEGER,
	captures JSON NOT NULL,
	context JSON NOT NULL,
	step TEXT,
	excerpt JSON NOT NULL,
	excerpt_from INTEGER,
	hint TEXT,
	signature TEXT,
	family TEXT NOT NULL,
	day INTEGER NOT NULL,
	trusted BOOLEAN NOT NULL,
	change TEXT,
	at INTEGER NOT NULL,
	CONSTRAINT pk_ci_verdict PRIMARY KEY (repository_id, job_id, ruleset, rank)
)
CREATE INDEX ix_ci_verdict_at ON ci_verdict (repository_id, at, job_id) WHERE current = 1 AND rank = 0
CREATE INDEX ix_ci_verdict_day ON ci_verdict (day, kind) WHERE current = 1 AND rank = 0
CREATE INDEX ix_ci_verdict_repository ON ci_verdict (repository_id, family) WHERE current = 1 AND rank = 0
CREATE INDEX ix_ci_verdict_signature ON ci_verdict (signature, day) WHERE current = 1 AND rank = 0
CREATE TABLE contribution_day (
	repository_id INTEGER NOT NULL,
	day INTEGER NOT NULL,
	pr_count INTEGER NOT NULL,
	users JSON NOT NULL,
	new_users INTEGER NOT NULL,
	review_hours JSON NOT NULL,
	merge_hours JSON NOT NULL,
	CONSTRAINT pk_contribution_day PRIMARY KEY (repository_id, day)
)
CREATE TABLE contribution_pull (
	repository_id INTEGER NOT NULL,
	number INTEGER NOT NULL,
	login TEXT NOT NULL,
	state TEXT NOT NULL,
	created_at INTEGER NOT NULL,
	day INTEGER,
	merged_at INTEGER,
	reviewed_at INTEGER,
	CONSTRAINT pk_contribution_pull PRIMARY KEY (repository_id, number)
)
CREATE INDEX ix_contribution_pull_day ON contribution_pull (repository_id, day)
CREATE INDEX ix_contribution_pull_login ON contribution_pull (repository_id, login, day)
CREATE INDEX ix_contribution_pull_waiting ON contribution_pull (repository_id, state, created_at)
CREATE TABLE delivery (
	id INTEGER NOT NULL,
	guid TEXT NOT NULL,
	event TEXT NOT NULL,
	action TEXT,
	repo TEXT,
	repository_id INTEGER,
	installation_id INTEGER,
	app_id INTEGER,
	source TEXT NOT NULL,
	received_at INTEGER NOT NULL,
	state TEXT NOT NULL,
	attempts INTEGER DEFAULT '0' NOT NULL,
	due_at INTEGER NOT NULL,
	error TEXT,
	headers TEXT,
	codec TEXT,
	body BLOB NOT NULL,
	CONSTRAINT pk_delivery PRIMARY KEY (id),
	UNIQUE (guid)
)
CREATE INDEX ix_delivery_of_others ON delivery (received_at) WHERE (source NOT IN ('webhook', 'api', 'pull'))
CREATE INDEX ix_delivery_parked ON delivery (id) WHERE state = 'parked'
CREATE INDEX ix_delivery_pending ON delivery (due_at) WHERE state = 'stored'
CREATE INDEX ix_delivery_received_at ON delivery (received_at)
CREATE TABLE folded_commit (
	repository_id INTEGER NOT NULL,
	branch TEXT NOT NULL,
	sha TEXT NOT NULL,
	at INTEGER NOT NULL,
	title TEXT NOT NULL,
	author TEXT,
	CONSTRAINT pk_folded_commit PRIMARY KEY (repository_id, branch, sha)
)
CREATE TABLE installation (
	repository_id INTEGER NOT NULL,
	repo TEXT NOT NULL,
	received_at INTEGER NOT NULL,
	id INTEGER NOT NULL,
	account_login TEXT,
	account_id INTEGER,
	account_type TEXT,
	app_id INTEGER,
	app_slug TEXT,
	target_type TEXT,
	target_id INTEGER,
	repository_selection TEXT,
	permissions JSON,
	events JSON,
	suspended_at INTEGER,
	created_at INTEGER,
	updated_at INTEGER,
	deleted_at INTEGER,
	merge_state JSON NOT NULL,
	CONSTRAINT pk_installation PRIMARY KEY (repository_id, id)
)
CREATE INDEX ix_installation_repo ON installation (lower(repo), id)
CREATE TABLE issue (
	repository_id INTEGER NOT NULL,
	repo TEXT NOT NULL,
	received_at INTEGER NOT NULL,
	id INTEGER NOT NULL,
	node_id TEXT,
	number INTEGER,
	title TEXT,
	body TEXT,
	state TEXT,
	state_reason TEXT,
	user_login TEXT,
	user_id INTEGER,
	author_association TEXT,
	labels JSON,
	assignees JSON,
	milestone_title TEXT,
	comments INTEGER,
	locked BOOLEAN,
	active_lock_reason TEXT,
	html_url TEXT,
	created_at INTEGER,
	updated_at INTEGER,
	closed_at INTEGER,
	deleted_at INTEGER,
	merge_state JSON NOT NULL,
	CONSTRAINT pk_issue PRIMARY KEY (repository_id, id)
)
CREATE INDEX ix_issue_disabled ON issue (repository_id, title) WHERE state = 'closed' AND substr(title, 1, 9) IN ('DISABLED ')
CREATE INDEX ix_issue_disabling ON issue (repository_id, number) WHERE state = 'open' AND substr(title, 1, 9) IN ('DISABLED ', 'UNSTABLE ')
CREATE INDEX ix_issue_number ON issue (number)
CREATE INDEX ix_issue_repo ON issue (lower(repo), id)
CREATE TABLE issue_comment (
	repository_id INTEGER NOT NULL,
	repo TEXT NOT NULL,
	received_at INTEGER NOT NULL,
	id INTEGER NOT NULL,
	node_id TEXT,
	body TEXT,
	user_login TEXT,
	user_id INTEGER,
	author_association TEXT,
	html_url TEXT,
	issue_url TEXT,
	created_at INTEGER,
	updated_at INTEGER,
	deleted_at INTEGER,
	merge_state JSON NOT NULL,
	CONSTRAINT pk_issue_comment PRIMARY KEY (repository_id, id)
)
CREATE INDEX ix_issue_comment_repo ON issue_comment (lower(repo), id)
CREATE TABLE issue_label_event (
	repository_id INTEGER NOT NULL,
	repo TEXT NOT NULL,
	received_at INTEGER NOT NULL,
	guid TEXT NOT NULL,
	action TEXT,
	issue_id INTEGER,
	issue_number INTEGER,
	label_id INTEGER,
	label_name TEXT,
	sender_login TEXT,
	issue_updated_at INTEGER,
	deleted_at INTEGER,
	merge_state JSON NOT NULL,
	CONSTRAINT pk_issue_label_event PRIMARY KEY (repository_id, guid)
)
CREATE INDEX ix_issue_label_event_repo ON issue_label_event (lower(repo), guid)
CREATE TABLE missed_delivery (
	app_id INTEGER NOT NULL,
	guid TEXT NOT NULL,
	log_id INTEGER NOT NULL,
	event TEXT NOT NULL,
	repository_id INTEGER,
	delivered_at INTEGER NOT NULL,
	asks INTEGER NOT NULL,
	asked_at INTEGER NOT NULL,
	lost BOOLEAN NOT NULL,
	CONSTRAINT pk_missed_delivery PRIMARY KEY (app_id, guid)
)
CREATE TABLE notice (
	event TEXT NOT NULL,
	at INTEGER NOT NULL,
	began_at INTEGER,
	heading TEXT NOT NULL,
	lines JSON NOT NULL,
	repo TEXT NOT NULL,
	branch TEXT NOT NULL,
	backend TEXT NOT NULL,
	oncalls JSON NOT NULL,
	path TEXT NOT NULL,
	id TEXT NOT NULL,
	audience TEXT NOT NULL,
	CONSTRAINT pk_notice PRIMARY KEY (id)
)
CREATE INDEX ix_notice_at ON notice (audience, at)
CREATE INDEX ix_notice_backend ON notice (audience, backend, at)
CREATE INDEX ix_notice_branch ON notice (audience, repo, branch, at)
CREATE TABLE notice_sending (
	notice_id TEXT NOT NULL,
	receiver TEXT NOT NULL,
	state TEXT NOT NULL,
	attempts INTEGER NOT NULL,
	created_at INTEGER NOT NULL,
	ended_at INTEGER,
	error TEXT,
	CONSTRAINT pk_notice_sending PRIMARY KEY (notice_id, receiver)
)
CREATE INDEX ix_notice_sending_state ON notice_sending (receiver, state, ended_at)
CREATE INDEX ix_notice_sending_waiting ON notice_sending (receiver, created_at) WHERE state = 'waiting'
CREATE TABLE notice_told (
	audience TEXT NOT NULL,
	event TEXT NOT NULL,
	"key" TEXT NOT NULL,
	notice_id TEXT NOT NULL,
	seen_at INTEGER NOT NULL,
	CONSTRAINT pk_notice_told PRIMARY KEY (audience, event, "key")
)
CREATE INDEX ix_notice_told_notice ON notice_told (notice_id)
CREATE TABLE oot_approval (
	upstream_repo TEXT NOT NULL,
	pr_number INTEGER NOT NULL,
	head_sha TEXT NOT NULL,
	login TEXT NOT NULL,
	created_at INTEGER NOT NULL,
	CONSTRAINT pk_oot_approval PRIMARY KEY (upstream_repo, pr_number, head_sha)
)
CREATE TABLE oot_budget (
	app_id INTEGER NOT NULL,
	account TEXT NOT NULL,
	next_write INTEGER NOT NULL,
	blocked_until INTEGER NOT NULL,
	pressed_until INTEGER NOT NULL,
	creations JSON NOT NULL,
	dispatches JSON NOT NULL,
	CONSTRAINT pk_oot_budget PRIMARY KEY (app_id, account)
)
CREATE TABLE oot_changed_files (
	upstream_repo TEXT NOT NULL,
	pr_number INTEGER NOT NULL,
	head_sha TEXT NOT NULL,
	base_ref TEXT NOT NULL,
	paths JSON NOT NULL,
	complete BOOLEAN,
	asked_at INTEGER NOT NULL,
	CONSTRAINT pk_oot_changed_files PRIMARY KEY (upstream_repo, pr_number, head_sha)
)
CREATE TABLE oot_check (
	external_id TEXT NOT NULL,
	upstream_repo TEXT NOT NULL,
	pr_number INTEGER,
	head_sha TEXT NOT NULL,
	name TEXT NOT NULL,
	check_run_id INTEGER,
	status TEXT NOT NULL,
	conclusion TEXT,
	digest TEXT NOT NULL,
	created_at INTEGER NOT NULL,
	written_at INTEGER NOT NULL,
	writing_until INTEGER NOT NULL,
	lost_until INTEGER NOT NULL,
	label_ended BOOLEAN NOT NULL,
	basis TEXT NOT NULL,
	CONSTRAINT pk_oot_check PRIMARY KEY (external_id)
)
CREATE INDEX ix_oot_check_head ON oot_check (head_sha)
CREATE INDEX ix_oot_check_name ON oot_check (upstream_repo, name)
CREATE INDEX ix_oot_check_pull ON oot_check (upstream_repo, pr_number)
CREATE INDEX ix_oot_check_run ON oot_check (check_run_id)
CREATE INDEX ix_oot_check_unfinished ON oot_check (name, created_at) WHERE status != 'completed'
CREATE TABLE oot_command (
	upstream_repo TEXT NOT NULL,
	comment_id INTEGER NOT NULL,
	position INTEGER NOT NULL,
	pr_number INTEGER NOT NULL,
	head_sha TEXT,
	login TEXT NOT NULL,
	verb TEXT NOT NULL,
	text TEXT NOT NULL,
	state TEXT NOT NULL,
	answer TEXT NOT NULL,
	delivery_id TEXT NOT NULL,
	created_at INTEGER NOT NULL,
	CONSTRAINT pk_oot_command PRIMARY KEY (upstream_repo, comment_id, position)
)
CREATE INDEX ix_oot_command_login ON oot_command (login, created_at)
CREATE INDEX ix_oot_command_pull ON oot_command (upstream_repo, pr_number)
CREATE TABLE oot_comment (
	upstream_repo TEXT NOT NULL,
	pr_number INTEGER NOT NULL,
	comment_id INTEGER,
	digest TEXT NOT NULL,
	written_at INTEGER NOT NULL,
	writing_until INTEGER NOT NULL,
	lost_until INTEGER NOT NULL,
	CONSTRAINT pk_oot_comment PRIMARY KEY (upstream_repo, pr_number)
)
CREATE TABLE oot_comment_refusal (
	upstream_repo TEXT NOT NULL,
	reason TEXT NOT NULL,
	refused_at INTEGER NOT NULL,
	CONSTRAINT pk_oot_comment_refusal PRIMARY KEY (upstream_repo)
)
CREATE TABLE oot_compared (
	job_key TEXT NOT NULL,
	completed_at INTEGER NOT NULL,
	history TEXT NOT NULL,
	url TEXT,
	elsewhere BOOLEAN NOT NULL,
	CONSTRAINT pk_oot_compared PRIMARY KEY (job_key)
)
CREATE TABLE oot_day (
	backend_key TEXT NOT NULL,
	day INTEGER NOT NULL,
	upstream_key TEXT NOT NULL,
	event_type TEXT NOT NULL,
	backend TEXT NOT NULL,
	level INTEGER NOT NULL,
	runs INTEGER NOT NULL,
	success INTEGER NOT NULL,
	failure INTEGER NOT NULL,
	timed_out INTEGER NOT NULL,
	cancelled INTEGER NOT NULL,
	skipped INTEGER NOT NULL,
	neutral INTEGER NOT NULL,
	running INTEGER NOT NULL,
	never_started INTEGER NOT NULL,
	not_run INTEGER DEFAULT '0' NOT NULL,
	not_dispatched INTEGER NOT NULL,
	superseded INTEGER NOT NULL,
	infra INTEGER DEFAULT '0' NOT NULL,
	execution BLOB NOT NULL,
	queue BLOB NOT NULL,
	whole BLOB NOT NULL,
	hours JSON NOT NULL,
	last_at INTEGER NOT NULL,
	written_at INTEGER NOT NULL,
	CONSTRAINT pk_oot_day PRIMARY KEY (backend_key, day, upstream_key, event_type)
)
CREATE INDEX ix_oot_day_day ON oot_day (day, written_at, backend_key)
CREATE TABLE oot_dispatch (
	id TEXT NOT NULL,
	delivery_id TEXT NOT NULL,
	source_guid TEXT NOT NULL,
	upstream_repo TEXT NOT NULL,
	event_type TEXT NOT NULL,
	action TEXT,
	pr_number INTEGER,
	head_sha TEXT,
	base_sha TEXT,
	base_ref TEXT,
	ref TEXT,
	labels JSON,
	backend TEXT NOT NULL,
	backend_key TEXT NOT NULL,
	level INTEGER NOT NULL,
	device TEXT,
	state TEXT NOT NULL,
	attempts INTEGER NOT NULL,
	created_at INTEGER NOT NULL,
	dispatched_at INTEGER,
	heard_at INTEGER,
	token_jti TEXT NOT NULL,
	answers TEXT,
	run_id TEXT,
	error TEXT,
	CONSTRAINT pk_oot_dispatch PRIMARY KEY (id),
	CONSTRAINT ux_oot_dispatch UNIQUE (delivery_id, backend_key)
)
CREATE INDEX ix_oot_dispatch_awaited ON oot_dispatch (state, created_at, id) WHERE heard_at IS NULL AND level > 1 AND oot_dispatch.action IS NOT 'closed'
CREATE INDEX ix_oot_dispatch_begun ON oot_dispatch (backend_key, dispatched_at) WHERE dispatched_at IS NOT NULL
CREATE INDEX ix_oot_dispatch_head ON oot_dispatch (head_sha)
CREATE INDEX ix_oot_dispatch_pull ON oot_dispatch (upstream_repo, pr_number)
CREATE INDEX ix_oot_dispatch_source ON oot_dispatch (source_guid)
CREATE INDEX ix_oot_dispatch_state ON oot_dispatch (state, created_at)
CREATE INDEX ix_oot_dispatch_unanswered ON oot_dispatch (backend_key, created_at) WHERE state IN ('failed', 'never_started', 'not_installed')
CREATE INDEX ix_oot_dispatch_waiting ON oot_dispatch (backend_key, created_at) WHERE state = 'waiting'
CREATE TABLE oot_failure_kind (
	job_key TEXT NOT NULL,
	kind TEXT NOT NULL,
	CONSTRAINT pk_oot_failure_kind PRIMARY KEY (job_key)
)
CREATE TABLE oot_ignore (
	upstream_repo TEXT NOT NULL,
	pr_number INTEGER NOT NULL,
	head_sha TEXT NOT NULL,
	base_ref TEXT,
	backend_key TEXT NOT NULL,
	login TEXT NOT NULL,
	reason TEXT NOT NULL,
	created_at INTEGER NOT NULL,
	CONSTRAINT pk_oot_ignore PRIMARY KEY (upstream_repo, pr_number, head_sha, backend_key)
)
CREATE TABLE oot_job_name (
	backend_key TEXT NOT NULL,
	upstream_key TEXT NOT NULL,
	workflow TEXT NOT NULL,
	job TEXT NOT NULL,
	backend TEXT NOT NULL,
	last_at INTEGER NOT NULL,
	CONSTRAINT pk_oot_job_name PRIMARY KEY (backend_key, upstream_key, workflow, job)
)
CREATE INDEX ix_oot_job_name_newest ON oot_job_name (last_at)
CREATE TABLE oot_key (
	id TEXT NOT NULL,
	repo TEXT NOT NULL,
	digest BLOB NOT NULL,
	note TEXT NOT NULL,
	created_at INTEGER NOT NULL,
	used_at INTEGER,
	revoked_at INTEGER,
	CONSTRAINT pk_oot_key PRIMARY KEY (id)
)
CREATE TABLE oot_level (
	backend_key TEXT NOT NULL,
	since INTEGER NOT NULL,
	level INTEGER NOT NULL,
	CONSTRAINT pk_oot_level PRIMARY KEY (backend_key, since)
)
CREATE TABLE oot_mention (
	upstream_repo TEXT NOT NULL,
	pr_number INTEGER NOT NULL,
	head_sha TEXT NOT NULL,
	backend_key TEXT NOT NULL,
	over BOOLEAN NOT NULL,
	created_at INTEGER NOT NULL,
	CONSTRAINT pk_oot_mention PRIMARY KEY (upstream_repo, pr_number, head_sha, backend_key)
)
CREATE TABLE oot_merge_base (
	upstream_repo TEXT NOT NULL,
	head_sha TEXT NOT NULL,
	base_ref TEXT NOT NULL,
	merge_base TEXT,
	committed_at INTEGER,
	asked_at INTEGER NOT NULL,
	CONSTRAINT pk_oot_merge_base PRIMARY KEY (upstream_repo, head_sha, base_ref)
)
CREATE TABLE oot_merge_group (
	upstream_repo TEXT NOT NULL,
	head_sha TEXT NOT NULL,
	base_sha TEXT,
	pr_number INTEGER NOT NULL,
	created_at INTEGER NOT NULL,
	ended_at INTEGER,
	base_ref TEXT,
	merged BOOLEAN,
	base_known BOOLEAN,
	asked_at INTEGER,
	CONSTRAINT pk_oot_merge_group PRIMARY KEY (upstream_repo, head_sha)
)
CREATE INDEX ix_oot_merge_group_pull ON oot_merge_group (upstream_repo, pr_number)
CREATE TABLE oot_ping (
	id TEXT NOT NULL,
	backend TEXT NOT NULL,
	backend_key TEXT NOT NULL,
	requested_by TEXT NOT NULL,
	cause TEXT NOT NULL,
	created_at INTEGER NOT NULL,
	token_jti TEXT NOT NULL,
	state TEXT NOT NULL,
	error TEXT,
	sent_at INTEGER,
	run_id TEXT,
	started_at INTEGER,
	completed_at INTEGER,
	conclusion TEXT,
	refused_at INTEGER,
	refusal TEXT,
	CONSTRAINT pk_oot_ping PRIMARY KEY (id),
	CONSTRAINT ux_oot_ping_cause UNIQUE (cause)
)
CREATE INDEX ix_oot_ping_backend ON oot_ping (backend_key, created_at)
CREATE TABLE oot_rate (
	caller TEXT NOT NULL,
	second INTEGER NOT NULL,
	accepted INTEGER NOT NULL,
	CONSTRAINT pk_oot_rate PRIMARY KEY (caller, second)
)
CREATE TABLE oot_rerun (
	dispatch_id TEXT NOT NULL,
	run_id TEXT NOT NULL,
	from_attempt INTEGER NOT NULL,
	scope TEXT NOT NULL,
	state TEXT NOT NULL,
	cause TEXT NOT NULL,
	created_at INTEGER NOT NULL,
	CONSTRAINT pk_oot_rerun PRIMARY KEY (dispatch_id, run_id, from_attempt)
)
CREATE INDEX ix_oot_rerun_awaited ON oot_rerun (created_at) WHERE state IN ('asked', 'sent')
CREATE TABLE oot_run (
	backend_key TEXT NOT NULL,
	run_id TEXT NOT NULL,
	run_attempt INTEGER NOT NULL,
	status TEXT NOT NULL,
	checked_at INTEGER NOT NULL,
	CONSTRAINT pk_oot_run PRIMARY KEY (backend_key, run_id, run_attempt)
)
CREATE TABLE oot_tree (
	upstream_repo TEXT NOT NULL,
	head_sha TEXT NOT NULL,
	tree_sha TEXT NOT NULL,
	asked_at INTEGER NOT NULL,
	CONSTRAINT pk_oot_tree PRIMARY KEY (upstream_repo, head_sha)
)
CREATE TABLE oot_workflow_job (
	job_key TEXT NOT NULL,
	dispatch_id TEXT,
	status TEXT NOT NULL,
	conclusion TEXT,
	downstream_repo TEXT NOT NULL,
	upstream_repo TEXT NOT NULL,
	pr_number INTEGER,
	head_sha TEXT,
	delivery_id TEXT NOT NULL,
	workflow_run_url TEXT,
	workflow_name TEXT NOT NULL,
	job_name TEXT NOT NULL,
	check_run_id TEXT,
	reporter_check_run_id TEXT,
	run_id TEXT NOT NULL,
	run_attempt INTEGER NOT NULL,
	queue_time FLOAT,
	execution_time FLOAT,
	started_at INTEGER,
	completed_at INTEGER,
	total_tests INTEGER,
	passed_tests INTEGER,
	failed_tests INTEGER,
	skipped_tests INTEGER,
	failed_tests_json JSON,
	reported_started_at INTEGER,
	reported_completed_at INTEGER,
	artifact_url TEXT,
	environment JSON,
	triage_verdict JSON,
	downstream_repo_level INTEGER NOT NULL,
	event_type TEXT NOT NULL,
	source TEXT NOT NULL,
	flags JSON NOT NULL,
	received_at INTEGER NOT NULL,
	updated_at INTEGER NOT NULL,
	CONSTRAINT pk_oot_workflow_job PRIMARY KEY (job_key)
)
CREATE INDEX ix_oot_workflow_job_backend ON oot_workflow_job (lower(downstream_repo), received_at)
CREATE INDEX ix_oot_workflow_job_dispatch ON oot_workflow_job (dispatch_id)
CREATE INDEX ix_oot_workflow_job_failed ON oot_workflow_job (lower(downstream_repo), received_at) WHERE failed_tests_json IS NOT NULL
CREATE INDEX ix_oot_workflow_job_head ON oot_workflow_job (head_sha, lower(downstream_repo || ''))
CREATE INDEX ix_oot_workflow_job_name ON oot_workflow_job (lower(downstream_repo), job_name, workflow_name, completed_at, pr_number)
CREATE INDEX ix_oot_workflow_job_no_commit ON oot_workflow_job (delivery_id) WHERE head_sha IS NULL
CREATE INDEX ix_oot_workflow_job_open ON oot_workflow_job (started_at) WHERE status = 'in_progress'
CREATE INDEX ix_oot_workflow_job_pull ON oot_workflow_job (upstream_repo, pr_number)
CREATE INDEX ix_oot_workflow_job_run ON oot_workflow_job (run_id, job_name, workflow_name, delivery_id, run_attempt)
CREATE TABLE pinned_repository (
	name TEXT NOT NULL,
	repository_id INTEGER NOT NULL,
	pinned_at INTEGER NOT NULL,
	moved_to TEXT,
	unreachable TEXT,
	CONSTRAINT pk_pinned_repository PRIMARY KEY (name)
)
CREATE TABLE provider_agent (
	organization TEXT NOT NULL,
	agent_id TEXT NOT NULL,
	name TEXT,
	queue TEXT NOT NULL,
	tags JSON,
	state TEXT NOT NULL,
	at INTEGER NOT NULL,
	version TEXT NOT NULL,
	CONSTRAINT pk_provider_agent PRIMARY KEY (organization, agent_id)
)
CREATE INDEX ix_provider_agent_at ON provider_agent (organization, at)
CREATE TABLE provider_job (
	repository_id INTEGER NOT NULL,
	repo TEXT NOT NULL,
	received_at INTEGER NOT NULL,
	provider TEXT NOT NULL,
	project TEXT NOT NULL,
	head_sha TEXT,
	branch TEXT,
	tag TEXT,
	pr_number INTEGER,
	status TEXT,
	conclusion TEXT,
	raw_state TEXT,
	url TEXT,
	created_at INTEGER,
	started_at INTEGER,
	completed_at INTEGER,
	updated_at INTEGER,
	delivery_guid TEXT,
	job_id TEXT NOT NULL,
	pipeline_id TEXT,
	workflow_id TEXT,
	workflow_name TEXT,
	job_name TEXT,
	number INTEGER,
	attempt INTEGER,
	shard INTEGER,
	shards INTEGER,
	runner TEXT,
	runnable_at INTEGER,
	exit_status INTEGER,
	soft_failed BOOLEAN,
	retried_in_job_id TEXT,
	reason TEXT,
	failure_kind TEXT,
	log_url TEXT,
	deleted_at INTEGER,
	merge_state JSON NOT NULL,
	CONSTRAINT pk_provider_job PRIMARY KEY (repository_id, provider, project, job_id)
)
CREATE INDEX ix_provider_job_open_status ON provider_job (received_at) WHERE provider = 'status' AND status != 'completed'
CREATE INDEX ix_provider_job_received_at ON provider_job (received_at)
CREATE INDEX ix_provider_job_repo ON provider_job (lower(repo), received_at)
CREATE TABLE provider_run (
	repository_id INTEGER NOT NULL,
	repo TEXT NOT NULL,
	received_at INTEGER NOT NULL,
	provider TEXT NOT NULL,
	project TEXT NOT NULL,
	head_sha TEXT,
	branch TEXT,
	tag TEXT,
	pr_number INTEGER,
	status TEXT,
	conclusion TEXT,
	raw_state TEXT,
	url TEXT,
	created_at INTEGER,
	started_at INTEGER,
	completed_at INTEGER,
	updated_at INTEGER,
	delivery_guid TEXT,
	run_id TEXT NOT NULL,
	pipeline_id TEXT,
	name TEXT,
	number INTEGER,
	source TEXT,
	deleted_at INTEGER,
	merge_state JSON NOT NULL,
	CONSTRAINT pk_provider_run PRIMARY KEY (repository_id, provider, project, run_id)
)
CREATE INDEX ix_provider_run_received_at ON provider_run (received_at)
CREATE INDEX ix_provider_run_repo ON provider_run (lower(repo), received_at)
CREATE TABLE pull_head (
	repository_id INTEGER NOT NULL,
	repo TEXT NOT NULL,
	received_at INTEGER NOT NULL,
	number INTEGER NOT NULL,
	head_sha TEXT NOT NULL,
	head_ref TEXT,
	base_sha TEXT,
	base_ref TEXT,
	updated_at INTEGER,
	deleted_at INTEGER,
	merge_state JSON NOT NULL,
	CONSTRAINT pk_pull_head PRIMARY KEY (repository_id, number, head_sha)
)
CREATE INDEX ix_pull_head_head_sha ON pull_head (head_sha)
CREATE INDEX ix_pull_head_repo ON pull_head (lower(repo), number)
CREATE TABLE pull_label_event (
	repository_id INTEGER NOT NULL,
	repo TEXT NOT NULL,
	received_at INTEGER NOT NULL,
	guid TEXT NOT NULL,
	action TEXT,
	pull_request_id INTEGER,
	pull_request_number INTEGER,
	pull_request_head_sha TEXT,
	label_id INTEGER,
	label_name TEXT,
	sender_login TEXT,
	pull_request_updated_at INTEGER,
	deleted_at INTEGER,
	merge_state JSON NOT NULL,
	CONSTRAINT pk_pull_label_event PRIMARY KEY (repository_id, guid)
)
CREATE INDEX ix_pull_label_event_number ON pull_label_event (pull_request_number)
CREATE INDEX ix_pull_label_event_repo ON pull_label_event (lower(repo), guid)
CREATE TABLE pull_request (
	repository_id INTEGER NOT NULL,
	repo TEXT NOT NULL,
	received_at INTEGER NOT NULL,
	id INTEGER NOT NULL,
	node_id TEXT,
	number INTEGER,
	title TEXT,
	body TEXT,
	state TEXT,
	draft BOOLEAN,
	locked BOOLEAN,
	user_login TEXT,
	user_id INTEGER,
	author_association TEXT,
	labels JSON,
	assignees JSON,
	requested_reviewers JSON,
	milestone_title TEXT,
	head_sha TEXT,
	head_ref TEXT,
	head_repo_full_name TEXT,
	head_repo_id INTEGER,
	base_sha TEXT,
	base_ref TEXT,
	merged BOOLEAN,
	merge_commit_sha TEXT,
	merged_by_login TEXT,
	comments INTEGER,
	review_comments INTEGER,
	commits INTEGER,
	additions INTEGER,
	deletions INTEGER,
	changed_files INTEGER,
	html_url TEXT,
	created_at INTEGER,
	updated_at INTEGER,
	closed_at INTEGER,
	merged_at INTEGER,
	deleted_at INTEGER,
	merge_state JSON NOT NULL,
	CONSTRAINT pk_pull_request PRIMARY KEY (repository_id, id)
)
CREATE INDEX ix_pull_request_demotes ON pull_request (repository_id, head_ref) WHERE state = 'open' AND substr(head_ref, 1, 14) = 'crcr-demotion/'
CREATE INDEX ix_pull_request_head_sha ON pull_request (head_sha)
CREATE INDEX ix_pull_request_number ON pull_request (number)
CREATE INDEX ix_pull_request_open ON pull_request (number) WHERE state = 'open'
CREATE INDEX ix_pull_request_repo ON pull_request (lower(repo), id)
CREATE TABLE pull_review (
	repository_id INTEGER NOT NULL,
	repo TEXT NOT NULL,
	received_at INTEGER NOT NULL,
	id INTEGER NOT NULL,
	node_id TEXT,
	body TEXT,
	state TEXT,
	user_login TEXT,
	user_id INTEGER,
	author_association TEXT,
	commit_id TEXT,
	html_url TEXT,
	pull_request_url TEXT,
	submitted_at INTEGER,
	updated_at INTEGER,
	deleted_at INTEGER,
	merge_state JSON NOT NULL,
	CONSTRAINT pk_pull_review PRIMARY KEY (repository_id, id)
)
CREATE INDEX ix_pull_review_pull_request_url ON pull_review (pull_request_url)
CREATE INDEX ix_pull_review_repo ON pull_review (lower(repo), id)
CREATE TABLE pull_review_comment (
	repository_id INTEGER NOT NULL,
	repo TEXT NOT NULL,
	received_at INTEGER NOT NULL,
	id INTEGER NOT NULL,
	node_id TEXT,
	pull_request_review_id INTEGER,
	body TEXT,
	path TEXT,
	line INTEGER,
	side TEXT,
	user_login TEXT,
	user_id INTEGER,
	author_association TEXT,
	commit_id TEXT,
	original_commit_id TEXT,
	in_reply_to_id INTEGER,
	diff_hunk TEXT,
	html_url TEXT,
	pull_request_url TEXT,
	created_at INTEGER,
	updated_at INTEGER,
	deleted_at INTEGER,
	merge_state JSON NOT NULL,
	CONSTRAINT pk_pull_review_comment PRIMARY KEY (repository_id, id)
)
CREATE INDEX ix_pull_review_comment_repo ON pull_review_comment (lower(repo), id)
CREATE TABLE push (
	repository_id INTEGER NOT NULL,
	repo TEXT NOT NULL,
	received_at INTEGER NOT NULL,
	guid TEXT NOT NULL,
	ref TEXT,
	"before" TEXT,
	"after" TEXT,
	created BOOLEAN,
	deleted BOOLEAN,
	forced BOOLEAN,
	base_ref TEXT,
	compare TEXT,
	commits JSON,
	head_commit_id TEXT,
	head_commit_message TEXT,
	head_commit_timestamp INTEGER,
	pusher_name TEXT,
	sender_login TEXT,
	deleted_at INTEGER,
	merge_state JSON NOT NULL,
	CONSTRAINT pk_push PRIMARY KEY (repository_id, guid)
)
CREATE INDEX ix_push_after ON push ("after")
CREATE INDEX ix_push_guid ON push (guid)
CREATE INDEX ix_push_repo ON push (lower(repo), guid)
CREATE TABLE repository (
	repository_id INTEGER NOT NULL,
	repo TEXT NOT NULL,
	received_at INTEGER NOT NULL,
	id INTEGER NOT NULL,
	node_id TEXT,
	name TEXT,
	full_name TEXT,
	private BOOLEAN,
	owner_login TEXT,
	owner_id INTEGER,
	fork BOOLEAN,
	description TEXT,
	archived BOOLEAN,
	disabled BOOLEAN,
	visibility TEXT,
	default_branch TEXT,
	language TEXT,
	topics JSON,
	html_url TEXT,
	created_at INTEGER,
	updated_at INTEGER,
	pushed_at INTEGER,
	deleted_at INTEGER,
	merge_state JSON NOT NULL,
	CONSTRAINT pk_repository PRIMARY KEY (repository_id, id)
)
CREATE INDEX ix_repository_repo ON repository (lower(repo), id)
CREATE TABLE repository_name (
	repository_id INTEGER NOT NULL,
	name TEXT NOT NULL,
	CONSTRAINT pk_repository_name PRIMARY KEY (repository_id, name)
)
CREATE INDEX ix_repository_name_name ON repository_name (name)
CREATE TABLE running_listing (
	repository_id INTEGER NOT NULL,
	run_id INTEGER NOT NULL,
	run_attempt INTEGER NOT NULL,
	at INTEGER NOT NULL,
	CONSTRAINT pk_running_listing PRIMARY KEY (repository_id, run_id, run_attempt)
)
CREATE INDEX ix_running_listing_at ON running_listing (at)
CREATE TABLE schema_support (
	oldest TEXT NOT NULL,
	CONSTRAINT pk_schema_support PRIMARY KEY (oldest)
)
CREATE TABLE secret (
	name TEXT NOT NULL,
	value BLOB NOT NULL,
	CONSTRAINT pk_secret PRIMARY KEY (name)
)
CREATE TABLE sink_mark (
	sink TEXT NOT NULL,
	what TEXT NOT NULL,
	"key" TEXT NOT NULL,
	since INTEGER NOT NULL,
	generation INTEGER NOT NULL,
	CONSTRAINT pk_sink_mark PRIMARY KEY (sink, what, "key")
)
 WITHOUT ROWID
CREATE INDEX ix_sink_mark_since ON sink_mark (sink, what, since, "key")
CREATE TABLE sink_refused (
	sink TEXT NOT NULL,
	what TEXT NOT NULL,
	"key" TEXT NOT NULL,
	error TEXT NOT NULL,
	at INTEGER NOT NULL,
	CONSTRAINT pk_sink_refused PRIMARY KEY (sink, what, "key")
)
CREATE TABLE sink_repository (
	sink TEXT NOT NULL,
	repository_id INTEGER NOT NULL,
	withdrawn_at INTEGER,
	deleted BOOLEAN NOT NULL,
	CONSTRAINT pk_sink_repository PRIMARY KEY (sink, repository_id)
)
CREATE TABLE sink_state (
	sink TEXT NOT NULL,
	what TEXT NOT NULL,
	paused BOOLEAN NOT NULL,
	stopped TEXT,
	due_at INTEGER NOT NULL,
	failures INTEGER NOT NULL,
	error TEXT,
	run TEXT NOT NULL,
	version INTEGER NOT NULL,
	sent_at INTEGER,
	sent INTEGER NOT NULL,
	began_at INTEGER NOT NULL,
	filled_from INTEGER,
	filled_after TEXT,
	filled INTEGER NOT NULL,
	CONSTRAINT pk_sink_state PRIMARY KEY (sink, what)
)
CREATE TABLE stable_push (
	repository_id INTEGER NOT NULL,
	branch TEXT NOT NULL,
	sha TEXT NOT NULL,
	committed_at INTEGER NOT NULL,
	title TEXT NOT NULL,
	jobs_passed INTEGER NOT NULL,
	day INTEGER NOT NULL,
	at INTEGER NOT NULL,
	CONSTRAINT pk_stable_push PRIMARY KEY (repository_id, branch, sha)
)
CREATE INDEX ix_stable_push_at ON stable_push (repository_id, at)
CREATE INDEX ix_stable_push_day ON stable_push (day)
CREATE TABLE sweep (
	app_id INTEGER NOT NULL,
	name TEXT NOT NULL,
	created_at INTEGER NOT NULL,
	tried_at INTEGER,
	reached INTEGER,
	finished_at INTEGER,
	found INTEGER NOT NULL,
	CONSTRAINT pk_sweep PRIMARY KEY (app_id, name)
)
CREATE TABLE task (
	id INTEGER NOT NULL,
	kind TEXT NOT NULL,
	"key" TEXT NOT NULL,
	state TEXT NOT NULL,
	created_at INTEGER NOT NULL,
	due_at INTEGER NOT NULL,
	attempts INTEGER NOT NULL,
	owner TEXT,
	lease_until INTEGER,
	finished_at INTEGER,
	error TEXT,
	cause TEXT,
	background BOOLEAN DEFAULT 0 NOT NULL,
	CONSTRAINT pk_task PRIMARY KEY (id)
)
CREATE INDEX ix_task_dead ON task (kind, "key") WHERE state = 'dead'
CREATE INDEX ix_task_due ON task (due_at) WHERE state = 'waiting'
CREATE INDEX ix_task_due_foreground ON task (due_at) WHERE state = 'waiting' AND background = 0
CREATE INDEX ix_task_state ON task (state, id)
CREATE UNIQUE INDEX ux_task_running ON task (kind, "key") WHERE state = 'running'
CREATE UNIQUE INDEX ux_task_waiting ON task (kind, "key") WHERE state = 'waiting'
CREATE TABLE td_miss (
	repository_id INTEGER NOT NULL,
	pr_number INTEGER NOT NULL,
	test_id INTEGER NOT NULL,
	file TEXT NOT NULL,
	head_sha TEXT NOT NULL,
	run_id INTEGER NOT NULL,
	at INTEGER NOT NULL,
	left_out_run_id INTEGER NOT NULL,
	day INTEGER NOT NULL,
	CONSTRAINT pk_td_miss PRIMARY KEY (repository_id, pr_number, test_id)
)
CREATE INDEX ix_td_miss_day ON td_miss (day)
CREATE INDEX ix_td_miss_run ON td_miss (repository_id, run_id)
CREATE TABLE test (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	repository_id INTEGER NOT NULL,
	class_id INTEGER NOT NULL,
	digest BLOB NOT NULL,
	canonical INTEGER NOT NULL,
	name TEXT NOT NULL,
	declared_name TEXT,
	language TEXT,
	first_at INTEGER NOT NULL,
	last_at INTEGER NOT NULL,
	trusted_first_at INTEGER,
	trusted_last_at INTEGER,
	CONSTRAINT uq_test UNIQUE (repository_id, digest)
)
CREATE INDEX ix_test_canonical ON test (canonical)
CREATE INDEX ix_test_class_id ON test (class_id, id)
CREATE INDEX ix_test_name ON test (name)
CREATE TABLE test_class (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	repository_id INTEGER NOT NULL,
	file TEXT NOT NULL,
	suite TEXT NOT NULL,
	last_at INTEGER NOT NULL,
	CONSTRAINT uq_test_class UNIQUE (repository_id, file, suite)
)
CREATE TABLE test_day (
	repository_id INTEGER NOT NULL,
	page INTEGER NOT NULL,
	day INTEGER NOT NULL,
	counts BLOB NOT NULL,
	CONSTRAINT pk_test_day PRIMARY KEY (repository_id, page, day)
)
CREATE INDEX ix_test_day_day ON test_day (day)
CREATE TABLE test_env (
	id INTEGER NOT NULL,
	digest BLOB NOT NULL,
	os TEXT NOT NULL,
	arch TEXT NOT NULL,
	accelerator TEXT NOT NULL,
	accelerator_version TEXT NOT NULL,
	device_name TEXT NOT NULL,
	device_count INTEGER NOT NULL,
	python TEXT NOT NULL,
	build TEXT NOT NULL,
	config TEXT NOT NULL,
	env_group TEXT NOT NULL,
	CONSTRAINT pk_test_env PRIMARY KEY (id),
	UNIQUE (digest)
)
CREATE TABLE test_exclusion (
	repository_id INTEGER NOT NULL,
	run_id INTEGER NOT NULL,
	run_attempt INTEGER NOT NULL,
	job_id INTEGER NOT NULL,
	object_id INTEGER NOT NULL,
	files JSON NOT NULL,
	received_at INTEGER NOT NULL,
	CONSTRAINT pk_test_exclusion PRIMARY KEY (repository_id, run_id, run_attempt, job_id, object_id)
)
CREATE INDEX ix_test_exclusion_received_at ON test_exclusion (received_at)
CREATE TABLE test_failure (
	generation INTEGER NOT NULL,
	test_id INTEGER NOT NULL,
	invoking_file TEXT NOT NULL,
	outcome SMALLINT NOT NULL,
	flaky BOOLEAN NOT NULL,
	attempts INTEGER NOT NULL,
	failed_attempts INTEGER NOT NULL,
	time_ms INTEGER,
	type TEXT NOT NULL,
	message TEXT NOT NULL,
	stack TEXT NOT NULL,
	output TEXT NOT NULL,
	source_file TEXT,
	line INTEGER,
	signature TEXT,
	verdict TEXT,
	evidence JSON,
	properties JSON,
	repository_id INTEGER NOT NULL,
	head_sha TEXT NOT NULL,
	trusted BOOLEAN NOT NULL,
	at INTEGER NOT NULL,
	CONSTRAINT pk_test_failure PRIMARY KEY (generation, test_id, invoking_file)
)
CREATE INDEX ix_test_failure_at ON test_failure (repository_id, at)
CREATE INDEX ix_test_failure_head_sha ON test_failure (head_sha)
CREATE INDEX ix_test_failure_signature ON test_failure (signature, at)
CREATE INDEX ix_test_failure_test_id ON test_failure (test_id, at)
CREATE TABLE test_job (
	repository_id INTEGER NOT NULL,
	run_id INTEGER NOT NULL,
	run_attempt INTEGER NOT NULL,
	job_id INTEGER NOT NULL,
	generation INTEGER NOT NULL,
	head_sha TEXT NOT NULL,
	upstream_sha TEXT,
	upstream_repo TEXT,
	backend TEXT,
	dispatch_id TEXT,
	head_branch TEXT,
	event TEXT,
	trusted BOOLEAN NOT NULL,
	pr_number INTEGER,
	env_id INTEGER NOT NULL,
	workflow TEXT NOT NULL,
	name TEXT NOT NULL,
	family TEXT NOT NULL,
	base_name TEXT NOT NULL,
	config TEXT NOT NULL,
	shard INTEGER,
	shards INTEGER,
	rerun_disabled BOOLEAN NOT NULL,
	tests INTEGER NOT NULL,
	passed INTEGER NOT NULL,
	failed INTEGER NOT NULL,
	errors INTEGER NOT NULL,
	skipped INTEGER NOT NULL,
	xfailed INTEGER NOT NULL,
	xpassed INTEGER NOT NULL,
	flaky INTEGER NOT NULL,
	crashed INTEGER NOT NULL,
	left_out INTEGER NOT NULL,
	time_ms INTEGER NOT NULL,
	files INTEGER NOT NULL,
	partial BOOLEAN DEFAULT 0 NOT NULL,
	flags JSON,
	properties JSON,
	unreadable JSON NOT NULL,
	notes JSON,
	at INTEGER NOT NULL,
	received_at INTEGER NOT NULL,
	counted INTEGER NOT NULL,
	counted_day INTEGER,
	counted_group TEXT,
	counted_block BLOB,
	block BLOB,
	CONSTRAINT pk_test_job PRIMARY KEY (repository_id, run_id, run_attempt, job_id)
)
CREATE INDEX ix_test_job_at ON test_job (at)
CREATE INDEX ix_test_job_family ON test_job (repository_id, family, at) WHERE trusted = 1 AND rerun_disabled = 0
CREATE UNIQUE INDEX ix_test_job_generation ON test_job (generation)
CREATE INDEX ix_test_job_head_sha ON test_job (repository_id, head_sha)
CREATE INDEX ix_test_job_uncounted ON test_job (repository_id, at) WHERE trusted = 1 AND rerun_disabled = 0 AND counted != generation OR NOT (trusted = 1 AND rerun_disabled = 0) AND counted != 0
CREATE INDEX ix_test_job_upstream_sha ON test_job (upstream_sha)
CREATE TABLE test_loss (
	repository_id INTEGER NOT NULL,
	run_id INTEGER NOT NULL,
	family TEXT NOT NULL,
	class_id INTEGER NOT NULL,
	kind TEXT NOT NULL,
	backend TEXT,
	head_sha TEXT NOT NULL,
	base_sha TEXT NOT NULL,
	tests_before INTEGER NOT NULL,
	tests INTEGER NOT NULL,
	skipped_before INTEGER NOT NULL,
	skipped INTEGER NOT NULL,
	gone INTEGER NOT NULL,
	examples JSON NOT NULL,
	at INTEGER NOT NULL,
	CONSTRAINT pk_test_loss PRIMARY KEY (repository_id, run_id, family, class_id, kind)
)
CREATE INDEX ix_test_loss_at ON test_loss (repository_id, at)
CREATE INDEX ix_test_loss_head_sha ON test_loss (head_sha)
CREATE TABLE test_part (
	repository_id INTEGER NOT NULL,
	run_id INTEGER NOT NULL,
	run_attempt INTEGER NOT NULL,
	job_id INTEGER NOT NULL,
	object_id INTEGER NOT NULL,
	kind TEXT NOT NULL,
	name TEXT NOT NULL,
	blob TEXT,
	unreadable JSON NOT NULL,
	notes JSON,
	received_at INTEGER NOT NULL,
	rules INTEGER DEFAULT '0' NOT NULL,
	told JSON,
	CONSTRAINT pk_test_part PRIMARY KEY (repository_id, run_id, run_attempt, job_id, object_id)
)
CREATE INDEX ix_test_part_object ON test_part (repository_id, object_id)
CREATE INDEX ix_test_part_received_at ON test_part (received_at)
CREATE TABLE test_quota (
	repository_id INTEGER NOT NULL,
	day INTEGER NOT NULL,
	stored INTEGER NOT NULL,
	bytes INTEGER NOT NULL,
	CONSTRAINT pk_test_quota PRIMARY KEY (repository_id, day)
)
CREATE TABLE test_rerun (
	generation INTEGER NOT NULL,
	name TEXT NOT NULL,
	suite TEXT NOT NULL,
	file TEXT NOT NULL,
	green INTEGER NOT NULL,
	red INTEGER NOT NULL,
	flaky BOOLEAN NOT NULL,
	repository_id INTEGER NOT NULL,
	trusted BOOLEAN NOT NULL,
	platforms JSON NOT NULL,
	at INTEGER NOT NULL,
	CONSTRAINT pk_test_rerun PRIMARY KEY (generation, name, suite, file)
)
CREATE INDEX ix_test_rerun_at ON test_rerun (repository_id, at)
CREATE TABLE test_rerun_job (
	generation INTEGER NOT NULL,
	at INTEGER NOT NULL,
	CONSTRAINT pk_test_rerun_job PRIMARY KEY (generation)
)
CREATE TABLE test_state (
	repository_id INTEGER NOT NULL,
	test_id INTEGER NOT NULL,
	env_group TEXT NOT NULL,
	state TEXT NOT NULL,
	since INTEGER NOT NULL,
	evidence JSON NOT NULL,
	issue TEXT,
	"by" TEXT NOT NULL,
	at INTEGER NOT NULL,
	CONSTRAINT pk_test_state PRIMARY KEY (repository_id, test_id, env_group)
)
CREATE INDEX ix_test_state_state ON test_state (repository_id, state, since)
CREATE TABLE test_summary (
	generation INTEGER NOT NULL,
	class_id INTEGER NOT NULL,
	invoking_file TEXT NOT NULL,
	at INTEGER NOT NULL,
	tests INTEGER NOT NULL,
	failures INTEGER NOT NULL,
	errors INTEGER NOT NULL,
	skipped INTEGER NOT NULL,
	successes INTEGER NOT NULL,
	flaky INTEGER NOT NULL,
	time_ms INTEGER NOT NULL,
	CONSTRAINT pk_test_summary PRIMARY KEY (generation, class_id, invoking_file)
)
CREATE INDEX ix_test_summary_class_id ON test_summary (class_id, at)
CREATE TABLE test_time (
	repository_id INTEGER NOT NULL,
	base_name TEXT NOT NULL,
	config TEXT NOT NULL,
	files BLOB NOT NULL,
	classes BLOB NOT NULL,
	at INTEGER NOT NULL,
	CONSTRAINT pk_test_time PRIMARY KEY (repository_id, base_name, config)
)
CREATE TABLE test_time_source (
	repository_id INTEGER NOT NULL,
	digest TEXT NOT NULL,
	at INTEGER NOT NULL,
	CONSTRAINT pk_test_time_source PRIMARY KEY (repository_id)
)
CREATE TABLE trunk_branch (
	repository_id INTEGER NOT NULL,
	branch TEXT NOT NULL,
	pushed_at INTEGER NOT NULL,
	deleted_at INTEGER NOT NULL,
	CONSTRAINT pk_trunk_branch PRIMARY KEY (repository_id, branch)
)
CREATE TABLE trunk_event (
	repository_id INTEGER NOT NULL,
	branch TEXT NOT NULL,
	name TEXT NOT NULL,
	first_bad TEXT NOT NULL,
	state_after TEXT NOT NULL,
	state_before TEXT NOT NULL,
	last_good TEXT,
	signature TEXT,
	at INTEGER,
	CONSTRAINT pk_trunk_event PRIMARY KEY (repository_id, branch, name, first_bad, state_after)
)
CREATE INDEX ix_trunk_event_at ON trunk_event (repository_id, branch, at)
CREATE TABLE utilization_day (
	repository_id INTEGER NOT NULL,
	kind TEXT NOT NULL,
	span INTEGER NOT NULL,
	day INTEGER NOT NULL,
	group_key TEXT NOT NULL,
	parent TEXT NOT NULL,
	trusted BOOLEAN NOT NULL,
	jobs INTEGER NOT NULL,
	records INTEGER NOT NULL,
	histograms BLOB NOT NULL,
	cpu_sum INTEGER NOT NULL,
	mem_sum INTEGER NOT NULL,
	gpu_sum INTEGER NOT NULL,
	gpu_bw_sum INTEGER NOT NULL,
	gpu_alloc_sum INTEGER NOT NULL,
	idle_gpu_s INTEGER NOT NULL,
	gpu_s INTEGER NOT NULL,
	seconds JSON NOT NULL,
	CONSTRAINT pk_utilization_day PRIMARY KEY (repository_id, kind, span, day, group_key, parent, trusted)
)
CREATE INDEX ix_utilization_day_day ON utilization_day (day)
CREATE TABLE utilization_job (
	repository_id INTEGER NOT NULL,
	run_id INTEGER NOT NULL,
	run_attempt INTEGER NOT NULL,
	job_id INTEGER NOT NULL,
	repo TEXT NOT NULL,
	workflow_name TEXT NOT NULL,
	job_name TEXT NOT NULL,
	base_name TEXT NOT NULL,
	config TEXT NOT NULL,
	runner_label TEXT NOT NULL,
	head_sha TEXT NOT NULL,
	head_branch TEXT NOT NULL,
	trusted BOOLEAN NOT NULL,
	source_id INTEGER NOT NULL,
	digest TEXT NOT NULL,
	status TEXT NOT NULL,
	reason TEXT NOT NULL,
	flags JSON NOT NULL,
	collect_interval FLOAT,
	model_version TEXT,
	gpu_count INTEGER,
	cpu_count INTEGER,
	gpu_type TEXT,
	start_at INTEGER NOT NULL,
	end_at INTEGER NOT NULL,
	records INTEGER NOT NULL,
	error_records INTEGER NOT NULL,
	cpu_avg FLOAT,
	cpu_p90 FLOAT,
	cpu_max FLOAT,
	mem_avg FLOAT,
	mem_p90 FLOAT,
	mem_max FLOAT,
	gpu_avg FLOAT,
	gpu_p90 FLOAT,
	gpu_max FLOAT,
	gpu_bw_avg FLOAT,
	gpu_bw_p90 FLOAT,
	gpu_bw_max FLOAT,
	gpu_alloc_avg FLOAT,
	gpu_alloc_p90 FLOAT,
	gpu_alloc_max FLOAT,
	observed_s FLOAT NOT NULL,
	idle_gpu_s FLOAT NOT NULL,
	gpu_s FLOAT NOT NULL,
	no_data_s FLOAT NOT NULL,
	saturated_s FLOAT NOT NULL,
	oom_risk BOOLEAN NOT NULL,
	peak JSON,
	segments JSON NOT NULL,
	histograms BLOB NOT NULL,
	totals JSON NOT NULL,
	machine_s INTEGER NOT NULL,
	day INTEGER NOT NULL,
	blob TEXT,
	received_at INTEGER NOT NULL,
	CONSTRAINT pk_utilization_job PRIMARY KEY (repository_id, run_id, run_attempt, job_id)
)
CREATE INDEX ix_utilization_job_day ON utilization_job (day)
CREATE INDEX ix_utilization_job_head_sha ON utilization_job (head_sha, repository_id)
CREATE INDEX ix_utilization_job_job ON utilization_job (repository_id, job_id)
CREATE INDEX ix_utilization_job_newest ON utilization_job (repository_id, received_at)
CREATE INDEX ix_utilization_job_run ON utilization_job (run_id, run_attempt)
CREATE TABLE word (
	kind TEXT NOT NULL,
	word BLOB NOT NULL,
	title_id INTEGER NOT NULL,
	CONSTRAINT pk_word PRIMARY KEY (kind, word, title_id)
)
CREATE TABLE word_title (
	id INTEGER NOT NULL,
	kind TEXT NOT NULL,
	repository_id INTEGER NOT NULL,
	ref TEXT NOT NULL,
	text TEXT NOT NULL,
	CONSTRAINT pk_word_title PRIMARY KEY (id),
	CONSTRAINT uq_word_title UNIQUE (kind, repository_id, ref)
)
CREATE TABLE workflow_job (
	repository_id INTEGER NOT NULL,
	repo TEXT NOT NULL,
	received_at INTEGER NOT NULL,
	id INTEGER NOT NULL,
	run_id INTEGER,
	run_attempt INTEGER,
	node_id TEXT,
	name TEXT,
	workflow_name TEXT,
	status TEXT,
	conclusion TEXT,
	head_sha TEXT,
	head_branch TEXT,
	labels JSON,
	runner_id INTEGER,
	runner_name TEXT,
	runner_group_id INTEGER,
	runner_group_name TEXT,
	steps JSON,
	html_url TEXT,
	created_at INTEGER,
	started_at INTEGER,
	completed_at INTEGER,
	deleted_at INTEGER,
	merge_state JSON NOT NULL,
	CONSTRAINT pk_workflow_job PRIMARY KEY (repository_id, id)
)
CREATE INDEX ix_workflow_job_head_sha ON workflow_job (head_sha)
CREATE INDEX ix_workflow_job_in_flight ON workflow_job (received_at) WHERE status != 'completed'
CREATE INDEX ix_workflow_job_repo ON workflow_job (lower(repo), id)
CREATE INDEX ix_workflow_job_run ON workflow_job (run_id, repository_id)
CREATE TABLE workflow_run (
	repository_id INTEGER NOT NULL,
	repo TEXT NOT NULL,
	received_at INTEGER NOT NULL,
	id INTEGER NOT NULL,
	run_attempt INTEGER NOT NULL,
	node_id TEXT,
	name TEXT,
	display_title TEXT,
	path TEXT,
	event TEXT,
	status TEXT,
	conclusion TEXT,
	workflow_id INTEGER,
	check_suite_id INTEGER,
	run_number INTEGER,
	head_branch TEXT,
	head_sha TEXT,
	head_repository_full_name TEXT,
	head_repository_id INTEGER,
	actor_login TEXT,
	triggering_actor_login TEXT,
	pull_requests JSON,
	html_url TEXT,
	created_at INTEGER,
	updated_at INTEGER,
	run_started_at INTEGER,
	deleted_at INTEGER,
	merge_state JSON NOT NULL,
	CONSTRAINT pk_workflow_run PRIMARY KEY (repository_id, id, run_attempt)
)
CREATE INDEX ix_workflow_run_head_sha ON workflow_run (head_sha)
CREATE INDEX ix_workflow_run_id ON workflow_run (id)
CREATE INDEX ix_workflow_run_in_flight ON workflow_run (received_at) WHERE status != 'completed'
CREATE INDEX ix_workflow_run_received_at ON workflow_run (received_at)
CREATE INDEX ix_workflow_run_repo ON workflow_run (lower(repo), id)
