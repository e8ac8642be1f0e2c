-- The charges of each day: a charge's days have whole micro-dollars that sum to it.
--
-- In:  charges, lines, ratios, bills, hard, hard_days(i, component, attempt, day, micro, seconds,
--      known).
-- Out: day_charges(i, component, attempt, day, micro, seconds, known).

CREATE OR REPLACE TEMP TABLE long_charges AS
SELECT i, component, attempt, micro, below, known
FROM charges ANTI JOIN hard USING (i)
WHERE first_day <> last_day AND component <> 'spot refund';

-- Their lines, cut at midnight.
CREATE OR REPLACE TEMP TABLE day_lines AS
WITH days AS (
    SELECT l.*, unnest(range(l_from // 86400, (l_to - 1) // 86400 + 1)) AS day
    FROM lines AS l SEMI JOIN long_charges AS c ON c.i = l.i AND c.component = l.component
        AND c.attempt IS NOT DISTINCT FROM l.attempt
)
SELECT i, component, attempt, day, greatest(l_from, day * 86400) AS l_from,
    least(l_to, (day + 1) * 86400) AS l_to, part
FROM days;

CREATE OR REPLACE TEMP TABLE day_charges AS
WITH costs AS (
    SELECT l.*, l_to - l_from AS seconds, (l_to - l_from)::HUGEINT AS cost
    FROM day_lines AS l SEMI JOIN (SELECT i FROM bills WHERE is_uniform) USING (i)
    UNION ALL
    SELECT l.*, least(l.l_to, r.s_end) - greatest(l.l_from, r.s_start) AS seconds,
        r.ratio::HUGEINT * (least(l.l_to, r.s_end) - greatest(l.l_from, r.s_start)) AS cost
    FROM day_lines AS l JOIN ratios AS r
        ON r.i = l.i AND r.s_start < l.l_to AND r.s_end > l.l_from
), weights AS (
    SELECT i, component, attempt, day, sum(cost * part) AS weight, sum(seconds * part) AS above
    FROM costs GROUP BY ALL
), parts AS (
    SELECT c.*, w.day, w.above, w.weight, sum(w.weight) OVER charge AS sum_of_weights
    FROM long_charges AS c JOIN weights AS w ON w.i = c.i AND w.component = c.component
        AND w.attempt IS NOT DISTINCT FROM c.attempt
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
FROM charges ANTI JOIN hard USING (i) WHERE first_day = last_day AND component <> 'spot refund'
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

DROP TABLE long_charges;
DROP TABLE day_lines;
