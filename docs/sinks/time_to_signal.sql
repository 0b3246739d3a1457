-- How long does a pull request wait for the result of a backend, waiting and running together?
SELECT
    downstream_repo AS backend,
    count() AS jobs,
    round(quantile(0.5)(queue_time + execution_time)) AS p50_seconds,
    round(quantile(0.9)(queue_time + execution_time)) AS p90_seconds
FROM v_oot_workflow_job
WHERE status = 'completed' AND queue_time IS NOT NULL AND execution_time IS NOT NULL
GROUP BY backend
ORDER BY p90_seconds DESC, backend
