-- Which test files take longest, on average of the jobs that run them?
SELECT
    repo,
    file,
    uniqExact(run_id, job_id) AS jobs,
    round(sum(time_ms) / 1000 / jobs, 1) AS seconds_a_job,
    round(sum(time_ms) / 3600000, 2) AS hours_in_all
FROM v_test_summary
WHERE at >= now() - INTERVAL 30 DAY
GROUP BY repo, file
ORDER BY seconds_a_job DESC, file
LIMIT 50
