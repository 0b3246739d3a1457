-- Which failures cost most jobs, as a share of all that failed?
SELECT
    signature,
    any(line) AS example,
    any(rule) AS rule,
    uniqExact(repository_id, job_id) AS jobs,
    round(100 * jobs / (SELECT uniqExact(repository_id, job_id) FROM v_ci_verdict), 1) AS percent
FROM v_ci_verdict
WHERE rank = 0 AND signature IS NOT NULL
GROUP BY signature
ORDER BY jobs DESC, signature
LIMIT 20
