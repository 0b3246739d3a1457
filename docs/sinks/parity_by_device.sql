-- How many tests does upstream run and pass, and how many does each backend, by device?
SELECT
    if(backend IS NULL, repo, assumeNotNull(backend)) AS tested_by,
    accelerator,
    count() AS jobs,
    sum(tests) AS tests_run,
    sum(passed) AS tests_passed,
    round(100 * tests_passed / tests_run, 1) AS percent
FROM v_test_job
WHERE tests > 0 AND at >= now() - INTERVAL 30 DAY
GROUP BY tested_by, accelerator
ORDER BY tests_run DESC, tested_by, accelerator
