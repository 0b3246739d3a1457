-- How long did jobs wait for a runner, by the label they asked for?
SELECT
    arrayJoin(labels) AS label,
    count() AS jobs,
    round(quantile(0.5)(dateDiff('second', created_at, started_at))) AS p50_seconds,
    round(quantile(0.9)(dateDiff('second', created_at, started_at))) AS p90_seconds,
    max(dateDiff('second', created_at, started_at)) AS longest_seconds
FROM v_workflow_job
WHERE started_at IS NOT NULL AND created_at IS NOT NULL AND created_at >= now() - INTERVAL 30 DAY
GROUP BY label
ORDER BY p90_seconds DESC, label
