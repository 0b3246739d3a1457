-- Since which commit does each job fail that still does, on a branch?
SELECT
    repo,
    branch,
    name,
    argMax(first_bad, at) AS first_bad_commit,
    argMax(last_good, at) AS last_good_commit,
    max(at) AS since
FROM v_trunk_event
GROUP BY repo, branch, name
HAVING argMax(state_after, at) = 'broken'
ORDER BY since, name
