-- Whole micro-dollars for each line: `toolkit/accounting/allocation.py`, `money.py`.
--
-- An instance's cost is rounded once, halves to the even micro-dollar. Its parts are rounded down,
-- and what is left goes to the largest remainders, to the earlier of equal ones.
--
-- In:  lines, bills, spans, hard, variable refund_within.
-- Out: charges(i, component, attempt, micro, above, below, known): its seconds are above / below.
--
-- DuckDB divides HUGEINTs twenty times slower than BIGINTs. So what fits is divided as BIGINT.

-- Prices that change, as multiples of the bill's unit.
CREATE OR REPLACE TEMP TABLE ratios AS
SELECT s.i, s.s_start, s.s_end, s.pico // b.unit AS ratio, b.is_narrow
FROM spans AS s JOIN bills AS b USING (i)
WHERE NOT b.is_uniform;

-- Where all seconds cost the same, these are the weights. Nearly all weights are narrow.
CREATE OR REPLACE TEMP TABLE weights AS
WITH uniform AS (
    SELECT i, component, attempt, sum((l_to - l_from) * part) AS weight, min(place) AS place
    FROM lines SEMI JOIN (SELECT i FROM bills WHERE is_uniform AND is_narrow) USING (i)
        ANTI JOIN hard USING (i)
    GROUP BY i, component, attempt
), costs AS (
    SELECT l.*, least(l.l_to, r.s_end) - greatest(l.l_from, r.s_start) AS seconds, r.ratio
    FROM lines AS l JOIN ratios AS r ON r.i = l.i AND r.s_start < l.l_to AND r.s_end > l.l_from
    WHERE r.is_narrow
), wide AS (
    SELECT l.*, l_to - l_from AS seconds, 1 AS ratio
    FROM lines AS l SEMI JOIN (SELECT i FROM bills WHERE is_uniform AND NOT is_narrow) USING (i)
    UNION ALL
    SELECT l.*, least(l.l_to, r.s_end) - greatest(l.l_from, r.s_start), r.ratio
    FROM lines AS l JOIN ratios AS r ON r.i = l.i AND r.s_start < l.l_to AND r.s_end > l.l_from
    WHERE NOT r.is_narrow
)
SELECT i, component, attempt, weight, weight AS above, place FROM uniform
UNION ALL
SELECT i, component, attempt, sum(ratio * seconds * part), sum(seconds * part), min(place)
FROM costs ANTI JOIN hard USING (i)
GROUP BY i, component, attempt
UNION ALL
SELECT i, component, attempt, sum(ratio::HUGEINT * seconds * part), sum(seconds::HUGEINT * part),
    min(place)
FROM wide ANTI JOIN hard USING (i)
GROUP BY i, component, attempt;

CREATE OR REPLACE TEMP TABLE sums AS
WITH sums AS (
    SELECT i, sum(weight) AS weight, max(weight) AS largest FROM weights GROUP BY i
)
SELECT s.i, s.weight, s.largest, b.whole, s.weight * b.unit AS above,
    3600000000::HUGEINT * b.whole AS below
FROM sums AS s JOIN bills AS b USING (i)
WHERE b.known AND log10(greatest(s.weight, 1)::DOUBLE) + log10(b.unit::DOUBLE) < 37;

INSERT INTO hard
SELECT DISTINCT i, 'its amounts have too many digits'
FROM (SELECT DISTINCT i FROM weights) JOIN bills AS b USING (i) ANTI JOIN sums USING (i)
WHERE b.known;

CREATE OR REPLACE TEMP TABLE grosses AS
WITH quotients AS (
    SELECT *, above // below AS quotient FROM sums
), remainders AS (
    SELECT *, above - quotient * below AS remainder FROM quotients
)
SELECT i, weight, whole, quotient + CASE WHEN 2 * remainder > below
        OR (2 * remainder = below AND quotient % 2 = 1) THEN 1 ELSE 0 END AS gross,
    log10(greatest(largest, 1)::DOUBLE) + log10(greatest(gross, 1)::DOUBLE) AS digits,
    digits < 18 AND weight < 1e18 AS is_narrow
FROM remainders;

INSERT INTO hard SELECT i, 'its amounts have too many digits' FROM grosses WHERE digits >= 37;

-- Each instance's parts are next to each other, the largest remainder first. Nearly all are narrow.
CREATE OR REPLACE TEMP TABLE floors AS
WITH shares AS (
    SELECT w.i, w.component, w.attempt, w.above, w.place, w.weight::BIGINT AS weight,
        g.gross::BIGINT AS gross, g.weight::BIGINT AS total
    FROM weights AS w JOIN grosses AS g USING (i) WHERE g.is_narrow
), floors AS (
    SELECT *, CASE WHEN total = 0 THEN 0 ELSE weight * gross // total END AS floor FROM shares
)
SELECT i, component, attempt, floor, above
FROM floors ORDER BY i, weight * gross - floor * total DESC, place;

INSERT INTO floors
WITH shares AS (
    SELECT w.i, w.component, w.attempt, w.above, w.place, w.weight, g.gross, g.weight AS total
    FROM weights AS w JOIN grosses AS g USING (i) WHERE NOT g.is_narrow AND g.digits < 37
), floors AS (
    SELECT *, CASE WHEN total = 0 THEN 0 ELSE weight * gross // total END AS floor FROM shares
)
SELECT i, component, attempt, floor, above
FROM floors ORDER BY i, weight * gross - floor * total DESC, place;

CREATE OR REPLACE TEMP TABLE residues AS
WITH shared AS (
    SELECT i, min(rowid) AS first_row, sum(floor) AS floors FROM floors GROUP BY i
)
SELECT i, first_row, gross - floors AS residue, whole FROM shared JOIN grosses USING (i);

CREATE OR REPLACE TEMP TABLE charges AS
SELECT f.i, component, attempt,
    floor + CASE WHEN f.rowid - r.first_row < r.residue THEN 1 ELSE 0 END AS micro,
    above, whole::HUGEINT AS below, true AS known
FROM floors AS f JOIN residues AS r USING (i)
UNION ALL
SELECT i, component, attempt, 0, w.above, b.whole, false
FROM weights AS w JOIN bills AS b USING (i) ANTI JOIN hard USING (i)
WHERE NOT b.known;

INSERT INTO charges
SELECT c.i, 'spot refund', c.attempt, -sum(c.micro), 0, 1, true
FROM charges AS c JOIN bills AS b USING (i)
WHERE b.interrupted AND b.ended IS NOT NULL AND b.end_seen
    AND b.ended - b.billed_from < getvariable('refund_within')
GROUP BY c.i, c.attempt
HAVING sum(c.micro) <> 0;

DROP TABLE ratios;
DROP TABLE weights;
DROP TABLE sums;
DROP TABLE grosses;
DROP TABLE floors;
DROP TABLE residues;
