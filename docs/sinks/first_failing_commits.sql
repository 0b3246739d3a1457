-- Since which commit does each job fail that still does, on a branch?
SELECT
    repo,
    branch,
    name,
    argMaxIf(first_bad, at, state_after = 'broken') AS first_bad_commit,
    argMaxIf(last_good, at, state_after = 'broken') AS last_good_commit,
    maxIf(at, state_after = 'broken') AS since
FROM v_trunk_event
GROUP BY repo, branch, name
HAVING countIf(state_after = 'broken') > 0 AND ifNull(maxIf(at, state_after = 'ok') < since, 1)
ORDER BY since, name
