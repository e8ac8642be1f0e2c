-- Whole micro-dollars for each line: `toolkit/accounting/allocation.py`, `money.py`.
--
-- An instance's cost is rounded once, halves to the even micro-dollar. Its parts are rounded down,
-- and what is left goes to the largest remainders, to the earlier of equal ones.
--
-- In:  lines, bills, used, totals, spans, hard, variable refund_within.
-- Out: charges(i, component, attempt, micro, above, below, known, first_day, last_day): its
--      seconds are above / below;
--      day_weights: what each day has in a charge.

CREATE OR REPLACE TEMP TABLE line_costs AS
SELECT l.*, l_to - l_from AS seconds, (l_to - l_from)::HUGEINT AS cost
FROM lines AS l JOIN bills AS b USING (i)
WHERE b.is_uniform
UNION ALL
SELECT l.*, l_to - l_from, sum((s.pico // b.unit)::HUGEINT
    * (least(l.l_to, s.s_end) - greatest(l.l_from, s.s_start)))
FROM lines AS l JOIN bills AS b USING (i)
    JOIN spans AS s ON s.i = l.i AND s.s_start < l.l_to AND s.s_end > l.l_from
WHERE NOT b.is_uniform
GROUP BY ALL;

CREATE OR REPLACE TEMP TABLE day_weights AS
WITH parts AS (
    SELECT i, l.day, sum(l.cost * (b.whole - l.part)) AS rest,
        sum(l.seconds * (b.whole - l.part)) AS rest_seconds, min(l.l_from) AS first_rest
    FROM line_costs AS l JOIN bills AS b USING (i)
    WHERE l.component IN ('useful work', 'lost work') AND NOT b.overlap AND l.part < b.whole
    GROUP BY i, l.day
), shared AS (
    SELECT t.i, t.second, b.whole - t.part AS rest, b.whole, b.is_uniform, b.unit,
        lead(t.second) OVER (PARTITION BY t.i ORDER BY t.second) AS next_second
    FROM totals AS t JOIN bills AS b USING (i)
    QUALIFY t.part > 0 AND t.part < b.whole
), shared_costs AS (
    SELECT i, second, rest, next_second - second AS seconds,
        (next_second - second)::HUGEINT AS cost
    FROM shared WHERE is_uniform
    UNION ALL
    SELECT h.i, h.second, h.rest, h.next_second - h.second, sum((s.pico // h.unit)::HUGEINT
        * (least(h.next_second, s.s_end) - greatest(h.second, s.s_start)))
    FROM shared AS h JOIN spans AS s
        ON s.i = h.i AND s.s_start < h.next_second AND s.s_end > h.second
    WHERE NOT h.is_uniform
    GROUP BY ALL
)
SELECT i, component, attempt, day, sum(cost * part) AS weight, sum(seconds * part) AS above,
    min(l_from) AS first_at, false AS is_rest, min(u_start) AS u_start
FROM line_costs GROUP BY i, component, attempt, day
UNION ALL
SELECT i, 'unallocated', NULL, day, rest, rest_seconds, first_rest, true, 0 FROM parts
UNION ALL
SELECT i, 'unallocated', NULL, second // 86400, sum(cost * rest), sum(seconds * rest), min(second),
    true, 0
FROM shared_costs GROUP BY i, second // 86400;

DELETE FROM day_weights
WHERE component IN (SELECT component FROM payers WHERE hidden);

CREATE OR REPLACE TEMP TABLE weights AS
SELECT i, component, attempt, sum(weight) AS weight, sum(above) AS above, min(first_at) AS first_at,
    any_value(is_rest) AS is_rest, min(u_start) AS u_start, min(day) AS first_day,
    max(day) AS last_day
FROM day_weights ANTI JOIN hard USING (i)
GROUP BY i, component, attempt;

CREATE OR REPLACE TEMP TABLE sums AS
WITH sums AS (
    SELECT i, sum(weight) AS weight, max(weight) AS largest FROM weights GROUP BY i
)
SELECT s.i, s.weight, s.largest, b.unit, b.whole, b.known,
    s.weight * b.unit AS above, 3600000000::HUGEINT * b.whole AS below
FROM sums AS s JOIN bills AS b USING (i)
WHERE b.known AND log10(greatest(s.weight, 1)::DOUBLE) + log10(b.unit::DOUBLE) < 37;

INSERT INTO hard
SELECT DISTINCT i, 'its amounts have too many digits'
FROM (SELECT DISTINCT i FROM weights) JOIN bills AS b USING (i) ANTI JOIN sums USING (i)
WHERE b.known;

CREATE OR REPLACE TEMP TABLE grosses AS
SELECT *, above // below + CASE WHEN 2 * (above % below) > below
    OR (2 * (above % below) = below AND (above // below) % 2 = 1) THEN 1 ELSE 0 END AS gross
FROM sums;

INSERT INTO hard
SELECT i, 'its amounts have too many digits' FROM grosses
WHERE log10(greatest(largest, 1)::DOUBLE) + log10(greatest(gross, 1)::DOUBLE) >= 37;

CREATE OR REPLACE TEMP TABLE charges AS
WITH shares AS (
    SELECT w.*, g.whole AS below, g.gross, g.weight AS sum_of_weights
    FROM weights AS w JOIN grosses AS g USING (i) ANTI JOIN hard USING (i)
), floors AS (
    SELECT *, CASE WHEN sum_of_weights = 0 THEN 0 ELSE weight * gross // sum_of_weights END AS floor,
        CASE WHEN sum_of_weights = 0 THEN 0 ELSE weight * gross % sum_of_weights END AS remainder
    FROM shares
), ranked AS (
    SELECT *, gross - sum(floor) OVER (PARTITION BY i) AS residue,
        row_number() OVER (
            PARTITION BY i ORDER BY remainder DESC, first_at, is_rest, u_start, attempt
        ) AS rank
    FROM floors
)
SELECT i, component, attempt, (floor + CASE WHEN rank <= residue THEN 1 ELSE 0 END)::BIGINT AS micro,
    above, below, true AS known, first_day, last_day
FROM ranked
UNION ALL
SELECT w.i, component, attempt, 0, above, b.whole, false, first_day, last_day
FROM weights AS w JOIN bills AS b USING (i)
WHERE NOT b.known;

INSERT INTO charges
SELECT c.i, 'spot refund', c.attempt, -sum(c.micro), 0, 1, true, min(first_day), max(last_day)
FROM charges AS c JOIN bills AS b USING (i)
WHERE b.interrupted AND b.ended IS NOT NULL AND b.end_seen
    AND b.ended - b.billed_from < getvariable('refund_within')
GROUP BY c.i, c.attempt
HAVING sum(c.micro) <> 0;

DROP TABLE lines;
DROP TABLE totals;
DROP TABLE line_costs;
DROP TABLE weights;
DROP TABLE sums;
DROP TABLE grosses;
