-- Which tests pass only sometimes, and on which devices?
SELECT
    accelerator,
    failure.suite AS suite,
    failure.name AS name,
    countIf(flaky) AS passed_on_another_try,
    countIf(outcome != 'passed') AS failed,
    uniqExact(failure.run_id) AS runs
FROM v_test_failure AS failure
INNER JOIN v_test_job AS job USING (repository_id, run_id, run_attempt, job_id)
WHERE failure.at >= now() - INTERVAL 30 DAY
GROUP BY accelerator, suite, name
HAVING passed_on_another_try > 0
ORDER BY passed_on_another_try DESC, failed DESC, accelerator, name
LIMIT 50
