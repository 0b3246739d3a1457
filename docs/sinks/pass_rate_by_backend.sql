-- Which share of its jobs did each backend pass, week by week?
SELECT
    downstream_repo AS backend,
    toStartOfWeek(completed_at, 1) AS week,
    count() AS jobs,
    countIf(conclusion = 'success') AS passed,
    round(100 * passed / jobs, 1) AS percent
FROM v_oot_workflow_job
WHERE status = 'completed' AND pr_number IS NOT NULL
GROUP BY backend, week
ORDER BY week DESC, percent, backend
