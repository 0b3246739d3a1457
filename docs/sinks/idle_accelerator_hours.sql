-- How many hours were accelerators held by jobs and idle, by the label of the runner?
SELECT
    runner_label,
    any(gpu_type) AS device,
    count() AS jobs,
    round(sum(gpu_s) / 3600, 2) AS accelerator_hours,
    round(sum(idle_gpu_s) / 3600, 2) AS idle_hours,
    round(100 * sum(idle_gpu_s) / sum(gpu_s), 1) AS idle_percent
FROM v_utilization_job
WHERE gpu_s > 0 AND received_at >= now() - INTERVAL 30 DAY
GROUP BY runner_label
ORDER BY idle_hours DESC, runner_label
