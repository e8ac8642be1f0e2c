-- The charges of closed days, rounded once for each instance: `toolkit/accounting/parts.py`.
--
-- In:  closed_rows and details, the rows of the days; payers(component, hidden), the components
--      that jobs don't pay; variable until.
-- Out: things: what has a cost, by its number i in the report's order;
--      sums(i, component, attempt, known, seconds, place, micro, whole);
--      costs(i, gross, refund, has_unknown);
--      too_large(i): what no 127 bits hold.

CREATE OR REPLACE TEMP TABLE things AS
SELECT instance_id, any_value(kind) AS kind, bool_or(is_refunded) AS is_refunded,
    row_number() OVER (ORDER BY min(usage_day), arg_min(number, usage_day)) AS i
FROM details WHERE subject = 'parts' GROUP BY instance_id;

CREATE OR REPLACE TEMP TABLE numbered AS
SELECT t.i, t.kind IN ('instance', 'rack') AS is_divided, r.usage_day, r.closing,
    r.kind = 'correction' AS is_correction, r.component::component AS component, r.attempt,
    r.known, r.micro, r.whole, r.exact_micro::HUGEINT AS parts,
    r.exact_seconds::HUGEINT AS seconds, r.position, r.price_sources, r.price_as_of,
    r.micro_text IS NOT NULL AS is_text
FROM closed_rows AS r JOIN things AS t USING (instance_id)
WHERE r.component <> 'spot refund';

-- One denominator for all rows of an instance.
CREATE OR REPLACE TEMP TABLE wholes AS
SELECT i, CASE WHEN min(whole) = max(whole) THEN min(whole)
    WHEN sum(DISTINCT log10(whole)) < 15
        THEN list_reduce(list(DISTINCT whole), lambda x, y: lcm(x, y)) END AS whole
FROM numbered GROUP BY i;

CREATE OR REPLACE TEMP TABLE too_large AS
SELECT DISTINCT i FROM numbered WHERE is_text
UNION
SELECT i FROM wholes WHERE whole IS NULL;

-- What a corrected day says of a key is the sum of its rows, at the place of the last one.
CREATE OR REPLACE TEMP TABLE day_rows AS
WITH corrected AS (SELECT DISTINCT usage_day FROM numbered WHERE is_correction),
scaled AS (
    SELECT n.* REPLACE (CASE WHEN w.whole = n.whole THEN parts ELSE parts * (w.whole // n.whole) END
            AS parts,
        CASE WHEN w.whole = n.whole THEN seconds ELSE seconds * (w.whole // n.whole) END AS seconds)
    FROM numbered AS n JOIN wholes AS w USING (i) ANTI JOIN too_large USING (i)
), known AS (
    SELECT *, false AS is_corrected FROM scaled ANTI JOIN corrected USING (usage_day)
    WHERE micro <> 0 OR parts <> 0 OR seconds <> 0
    UNION ALL
    SELECT * REPLACE (last_value(position) OVER every AS position,
        last_value(price_sources) OVER every AS price_sources,
        last_value(price_as_of) OVER every AS price_as_of), true AS is_corrected
    FROM scaled SEMI JOIN corrected USING (usage_day)
    WINDOW every AS (PARTITION BY usage_day, i, component, attempt, known ORDER BY closing
        ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
    QUALIFY sum(micro) OVER every <> 0 OR sum(parts) OVER every <> 0
        OR sum(seconds) OVER every <> 0
), gaps AS (
    SELECT i, usage_day FROM details JOIN things USING (instance_id)
    WHERE subject = 'parts' AND next_use < getvariable('until')
), placed AS (
    SELECT k.*, g.usage_day IS NOT NULL AND k.component = 'idle tail' AS is_gap,
        CASE WHEN is_gap THEN 'idle gap'::component ELSE k.component END AS line,
        (k.usage_day - DATE '1970-01-01') * 1048576 + k.position AS place
    FROM known AS k LEFT JOIN gaps AS g USING (i, usage_day)
)
SELECT r.i, r.usage_day, r.line AS component, r.known, r.micro, r.parts, r.seconds, r.is_gap,
    r.is_corrected, r.place, r.price_sources, r.price_as_of,
    CASE WHEN p.component IS NULL OR NOT r.is_divided THEN r.attempt END AS attempt,
    p.component IS NOT NULL AND r.is_divided AND r.attempt IS NOT NULL AS is_moved
FROM placed AS r LEFT JOIN payers AS p ON p.component = r.line
WHERE NOT (r.is_divided AND coalesce(p.hidden, false));

-- Of one day the charges are known: the day's own rounding is that of the report.
CREATE OR REPLACE TEMP TABLE several AS
SELECT i FROM day_rows GROUP BY i
HAVING min(usage_day) < max(usage_day) OR bool_or(is_gap OR is_moved);

CREATE OR REPLACE TEMP TABLE merged AS
SELECT i, component, attempt, known, min(place) AS place, sum(parts) AS weight,
    sum(seconds) AS seconds
FROM day_rows SEMI JOIN several USING (i)
GROUP BY i, component, attempt, known;

CREATE OR REPLACE TEMP TABLE grosses AS
WITH totals AS (
    SELECT i, sum(weight) AS weight, max(weight) AS largest,
        3600000000::HUGEINT * any_value(w.whole) AS below
    FROM merged JOIN wholes AS w USING (i) GROUP BY i
), quotients AS (
    SELECT *, weight // below AS quotient FROM totals
), remainders AS (
    SELECT *, weight - quotient * below AS remainder FROM quotients
)
SELECT i, weight, quotient + CASE WHEN 2 * remainder > below
        OR (2 * remainder = below AND quotient % 2 = 1) THEN 1 ELSE 0 END AS gross,
    log10(greatest(largest, 1)::DOUBLE) + log10(greatest(gross, 1)::DOUBLE) AS digits
FROM remainders;

INSERT INTO too_large SELECT i FROM grosses WHERE digits >= 37;

CREATE OR REPLACE TEMP TABLE floors AS
WITH shares AS (
    SELECT m.*, g.gross, g.weight AS total
    FROM merged AS m JOIN grosses AS g USING (i) WHERE g.digits < 37
), floors AS (
    SELECT *, CASE WHEN total = 0 THEN 0 ELSE weight * gross // total END AS floor FROM shares
)
SELECT *, weight * gross - floor * total AS remainder FROM floors;

CREATE OR REPLACE TEMP TABLE sums AS
WITH ranked AS (
    SELECT *, gross - sum(floor) OVER (PARTITION BY i) AS residue,
        row_number() OVER (PARTITION BY i ORDER BY remainder DESC, place) AS rank
    FROM floors
), charges AS (
    SELECT i, component, attempt, known, seconds, place,
        (floor + CASE WHEN rank <= residue THEN 1 ELSE 0 END)::BIGINT AS micro
    FROM ranked
    UNION ALL
    SELECT i, component, attempt, known, seconds, place, micro
    FROM day_rows ANTI JOIN several USING (i) WHERE NOT is_corrected
    UNION ALL
    SELECT i, component, attempt, known, sum(seconds), min(place), sum(micro)::BIGINT
    FROM day_rows ANTI JOIN several USING (i) WHERE is_corrected
    GROUP BY i, component, attempt, known
)
SELECT c.*, w.whole FROM charges AS c JOIN wholes AS w USING (i);

-- EC2 takes back what it charged, from whom it was charged.
CREATE OR REPLACE TEMP TABLE refunds AS
SELECT s.i, s.attempt, -sum(s.micro)::BIGINT AS micro, min(s.place) AS place
FROM sums AS s JOIN things AS t USING (i) WHERE t.is_refunded
GROUP BY s.i, s.attempt HAVING sum(s.micro) <> 0;

CREATE OR REPLACE TEMP TABLE costs AS
SELECT s.i, s.gross, coalesce(r.refund, 0) AS refund, s.has_unknown
FROM (SELECT i, sum(micro) AS gross, bool_or(NOT known) AS has_unknown FROM sums GROUP BY i) AS s
    LEFT JOIN (SELECT i, sum(micro) AS refund FROM refunds GROUP BY i) AS r USING (i);

INSERT INTO sums
SELECT i, 'spot refund', attempt, true, 0, 1099511627776 * 1048576 + place, micro, 1 FROM refunds;

-- The sources of prices: what was refunded has those of its attempt's charges.
CREATE OR REPLACE TEMP TABLE component_prices AS
SELECT component, price_sources, min(price_as_of) AS as_of
FROM day_rows WHERE price_sources <> '' GROUP BY component, price_sources
UNION ALL
SELECT 'spot refund', d.price_sources, min(d.price_as_of)
FROM refunds AS r JOIN day_rows AS d ON d.i = r.i AND d.attempt IS NOT DISTINCT FROM r.attempt
WHERE d.price_sources <> '' GROUP BY d.price_sources;

DROP TABLE numbered;
DROP TABLE merged;
DROP TABLE grosses;
DROP TABLE floors;
DROP TABLE several;
DROP TABLE refunds;
