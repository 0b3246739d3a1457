-- How many machine hours were lost to failures of the infrastructure, by the rule that recognizes them?
SELECT
    verdict.rule AS rule,
    uniqExact(verdict.job_id) AS jobs,
    round(sum(dateDiff('second', job.started_at, job.completed_at)) / 3600, 2) AS machine_hours,
    max(job.completed_at) AS last_seen
FROM v_ci_verdict AS verdict
INNER JOIN v_workflow_job AS job ON job.repository_id = verdict.repository_id AND job.id = verdict.job_id
WHERE verdict.rank = 0 AND verdict.kind = 'infra' AND job.started_at IS NOT NULL AND job.completed_at IS NOT NULL
GROUP BY rule
ORDER BY machine_hours DESC, jobs DESC, rule
