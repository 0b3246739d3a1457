-- How long did searches for a culprit take, and how many ended with one commit?
SELECT
    backend,
    count() AS searches,
    countIf(state = 'found' AND confidence = 'commit') AS one_commit,
    round(quantileIf(0.5)(dateDiff('minute', created_at, ended_at), state = 'found')) AS median_minutes,
    sum(good_runs + bad_runs) AS runs,
    countIf(mended_sha IS NOT NULL) AS mended
FROM v_bisect
WHERE ended_at IS NOT NULL
GROUP BY backend
ORDER BY searches DESC, backend
