-- The charges of each day: a charge's days have whole micro-dollars that sum to it.
--
-- In:  charges, day_weights, hard_days(i, component, attempt, day, micro, seconds, known).
-- Out: day_charges(i, component, attempt, day, micro, seconds, known).

CREATE OR REPLACE TEMP TABLE day_charges AS
WITH work AS (
    SELECT * FROM charges ANTI JOIN hard USING (i) WHERE component <> 'spot refund'
), parts AS (
    SELECT c.i, c.component, c.attempt, w.day, w.above, c.below, c.known, c.micro, w.weight,
        sum(w.weight) OVER charge AS sum_of_weights
    FROM work AS c JOIN day_weights AS w ON w.i = c.i AND w.component = c.component
        AND w.attempt IS NOT DISTINCT FROM c.attempt
    WHERE c.first_day <> c.last_day
    WINDOW charge AS (PARTITION BY c.i, c.component, c.attempt)
), floors AS (
    SELECT *, CASE WHEN sum_of_weights = 0 THEN 0 ELSE micro * weight // sum_of_weights END AS floor,
        CASE WHEN sum_of_weights = 0 THEN 0 ELSE micro * weight % sum_of_weights END AS remainder
    FROM parts
), ranked AS (
    SELECT *, micro - sum(floor) OVER (PARTITION BY i, component, attempt) AS residue,
        row_number() OVER (
            PARTITION BY i, component, attempt ORDER BY remainder DESC, day
        ) AS rank
    FROM floors
)
SELECT i, component, attempt, first_day AS day, micro, above::DOUBLE / below AS seconds, known
FROM work WHERE first_day = last_day
UNION ALL
SELECT i, component, attempt, day, (floor + CASE WHEN rank <= residue THEN 1 ELSE 0 END)::BIGINT,
    above::DOUBLE / below, known
FROM ranked
UNION ALL
SELECT i, component, attempt, day, micro, seconds, known FROM hard_days;

-- EC2 takes back what it charged, on each day.
INSERT INTO day_charges
SELECT d.i, 'spot refund', d.attempt, d.day, -sum(d.micro), 0, true
FROM day_charges AS d JOIN charges AS c ON c.i = d.i AND c.attempt IS NOT DISTINCT FROM d.attempt
WHERE c.component = 'spot refund'
GROUP BY d.i, d.attempt, d.day
HAVING sum(d.micro) <> 0;
