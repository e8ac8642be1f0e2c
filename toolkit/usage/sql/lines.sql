-- What each second of an instance went to: `toolkit/accounting/timeline.py`.
--
-- In:  lives, usages, waits, spans(i, s_start, s_end, pico, known, is_exact) within the
--      billed time, payers(component, hidden), variables since, until, minimum_seconds.
-- Out: bills: the billed time of each instance, lo ≤ t < hi, with its prices and its whole;
--      lines(i, component, attempt, l_from, l_to, part, place): part of the whole. By their
--      places the lines of an instance are in the order of their begin, then of their usages;
--      hard: instances that the exact engine divides, since these statements can't.

CREATE OR REPLACE TEMP TABLE hard(i INTEGER, reason VARCHAR);

INSERT INTO hard SELECT i, 'it was stopped' FROM lives WHERE stopped AND NOT never_ran;

CREATE OR REPLACE TEMP TABLE billed AS
WITH ends AS (
    SELECT *, coalesce(ended, getvariable('until')) AS alive_end,
        CASE WHEN ended IS NULL THEN getvariable('until')
            ELSE greatest(ended, billed_from + getvariable('minimum_seconds')) END AS billed_end
    FROM lives WHERE NOT never_ran
)
SELECT *, greatest(billed_from, getvariable('since')) AS lo,
    least(billed_end, getvariable('until')) AS hi,
    least(billed_end, getvariable('until'), alive_end) AS used_until
FROM ends
WHERE greatest(billed_from, getvariable('since')) < least(billed_end, getvariable('until'));

CREATE OR REPLACE TEMP TABLE prices AS
WITH facts AS (
    SELECT i, bool_and(known) AS known, bool_or(known) <> bool_and(known) AS is_partly_known,
        bool_and(is_exact) AS is_exact, min(pico) AS lowest, max(pico) AS highest
    FROM spans GROUP BY i
), units AS (
    SELECT i, list_reduce(list(pico), lambda x, y: gcd(x, y)) AS unit
    FROM spans SEMI JOIN (SELECT i FROM facts WHERE lowest < highest) USING (i) GROUP BY i
)
SELECT i, known, is_partly_known, is_exact, lowest = highest AS is_uniform, highest,
    coalesce(unit, greatest(lowest, 1)) AS unit
FROM facts LEFT JOIN units USING (i);

INSERT INTO hard
SELECT i, 'a part of its price is unknown' FROM prices WHERE is_partly_known OR NOT is_exact;

-- The whole: one denominator for all shares of an instance.
CREATE OR REPLACE TEMP TABLE wholes AS
WITH denominators AS (
    SELECT DISTINCT i, below FROM usages WHERE below > 1
), common AS (
    SELECT i, CASE WHEN sum(log10(below)) <= 15
        THEN list_reduce(list(TRY_CAST(below AS BIGINT)), lambda x, y: lcm(x, y)) END AS whole
    FROM denominators GROUP BY i
), uses AS (
    SELECT i, count(*) AS usages, max(u_end) AS last_end, bool_or(u_start < earlier_end) AS overlap
    FROM usages GROUP BY i
)
SELECT u.*, CASE WHEN c.i IS NULL THEN 1 ELSE c.whole END AS whole
FROM uses AS u SEMI JOIN billed USING (i) LEFT JOIN common AS c USING (i);

INSERT INTO hard SELECT i, 'its shares have no small denominator' FROM wholes WHERE whole IS NULL;

CREATE OR REPLACE TEMP TABLE bills AS
SELECT b.*, p.known, p.is_uniform, p.unit, coalesce(w.usages, 0) AS usages, w.last_end,
    coalesce(w.overlap, false) AS overlap, coalesce(w.whole, 1) AS whole,
    -- No second has more than the whole, so no weight of it is larger: less than half of 2^63.
    (hi - lo)::DOUBLE * coalesce(w.whole, 1) * greatest(p.highest // p.unit, 1) < 4e18 AS is_narrow
FROM billed AS b JOIN prices AS p USING (i) LEFT JOIN wholes AS w USING (i)
    ANTI JOIN hard USING (i);

-- The usage that ended last before each one: the one before it, where none overlap.
CREATE OR REPLACE TEMP TABLE latest_usages AS
SELECT i, position, max(u_end * 67108864 + position) OVER (
    PARTITION BY i ORDER BY position ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
) % 67108864 AS latest, max(u_end * 67108864 + position) OVER (PARTITION BY i) % 67108864 AS last
FROM usages SEMI JOIN (SELECT i FROM bills WHERE overlap) USING (i);

-- The times without a usage, each with what was before it and whether a usage comes after. One
-- behind the window is not asked: it would change a window that is over.
CREATE OR REPLACE TEMP TABLE pieces AS
WITH gaps AS (
    SELECT u.i, u.position - 1 AS started, u.position AS next,
        greatest(coalesce(u.earlier_end, b.lo), b.lo) AS p_from,
        least(u.u_start, b.used_until) AS p_to,
        u.u_start < getvariable('until') AS has_later_usage
    FROM usages AS u JOIN bills AS b USING (i)
    UNION ALL
    SELECT i, usages, NULL, greatest(coalesce(last_end, lo), lo), used_until, false FROM bills
    UNION ALL
    -- The rest of the first minute, which is billed behind the end.
    SELECT i, usages, -1, greatest(alive_end, lo), hi, false FROM bills WHERE alive_end < hi
), latest AS (
    SELECT i, position, latest FROM latest_usages
    UNION ALL
    SELECT DISTINCT i, NULL, last FROM latest_usages
)
SELECT g.*, coalesce(l.latest, g.started) AS latest_position
FROM (SELECT * FROM gaps WHERE p_from < p_to) AS g
    LEFT JOIN latest AS l ON l.i = g.i
        AND l.position IS NOT DISTINCT FROM CASE WHEN g.next = -1 THEN NULL ELSE g.next END;

CREATE OR REPLACE TEMP TABLE ordered_waits AS
SELECT w.i, w.attempt, w.w_start, w.w_end,
    row_number() OVER (PARTITION BY w.i ORDER BY w.w_end, w.attempt) AS by_end,
    row_number() OVER (PARTITION BY w.i ORDER BY w.w_end, w.w_start, w.attempt) AS by_latest
FROM waits AS w SEMI JOIN bills USING (i);

CREATE OR REPLACE TEMP TABLE waits_of AS
SELECT i, count(*) AS waits, count(*) FILTER (w_start < getvariable('until')) AS waits_in_window
FROM ordered_waits GROUP BY i;

INSERT INTO hard
WITH many_gaps AS (SELECT i, count(*) AS gaps FROM pieces SEMI JOIN waits_of USING (i) GROUP BY i)
SELECT i, 'it has many waits' FROM waits_of JOIN many_gaps USING (i) WHERE waits * gaps > 20000;

-- They are cut where a wait begins or ends, which is rare.
CREATE OR REPLACE TEMP TABLE cuts AS
WITH seconds AS (
    SELECT i, w_start AS second FROM ordered_waits UNION SELECT i, w_end FROM ordered_waits
)
SELECT DISTINCT p.*, s.second
FROM pieces AS p JOIN seconds AS s ON s.i = p.i AND p.p_from < s.second AND s.second < p.p_to
WHERE p.next IS DISTINCT FROM -1;

DELETE FROM pieces USING cuts WHERE pieces.i = cuts.i AND pieces.p_from = cuts.p_from;

INSERT INTO pieces
WITH begun AS (
    SELECT * EXCLUDE (second), second AS begin FROM cuts
    UNION
    SELECT * EXCLUDE (second), p_from FROM cuts
)
SELECT i, started, next, begin, lead(begin, 1, p_to) OVER (PARTITION BY i, p_from ORDER BY begin),
    has_later_usage, latest_position
FROM begun;

-- Nearly always one job waited for an instance.
CREATE OR REPLACE TEMP TABLE piece_waits AS
WITH begun AS (
    SELECT p.i, p.p_from, n.waits, w.by_latest,
        CASE WHEN w.w_end > p.p_from THEN w.by_end END AS active
    FROM pieces AS p JOIN ordered_waits AS w ON w.i = p.i AND w.w_start <= p.p_from
        JOIN waits_of AS n ON n.i = p.i
)
SELECT i, p_from, active, by_latest AS latest_wait, 1 AS begun FROM begun WHERE waits = 1
UNION ALL
SELECT i, p_from, min(active), max(by_latest), count(*) FROM begun WHERE waits > 1
GROUP BY i, p_from;

-- The line of each piece without a usage.
CREATE OR REPLACE TEMP TABLE lines AS
WITH causes AS (
    SELECT p.*, b.is_head, b.node_number, b.never_up, b.static, b.usages, b.whole,
        a.attempt AS waiting, u.attempt AS user_before, l.attempt AS waited_before,
        -- The later end wins; of equal ones the one that began later, a wait before a usage.
        u.attempt IS NOT NULL AND (l.attempt IS NULL OR u.u_end > l.w_end
            OR (u.u_end = l.w_end AND u.u_start > l.w_start)) AS usage_was_last,
        coalesce(w.waits_in_window, 0) > coalesce(x.begun, 0) AS has_later_wait
    FROM pieces AS p JOIN bills AS b USING (i)
        LEFT JOIN waits_of AS w ON w.i = p.i
        LEFT JOIN piece_waits AS x ON x.i = p.i AND x.p_from = p.p_from
        LEFT JOIN ordered_waits AS a ON a.i = p.i AND a.by_end = x.active
        LEFT JOIN ordered_waits AS l ON l.i = p.i AND l.by_latest = x.latest_wait
        LEFT JOIN usages AS u ON u.i = p.i AND u.position = p.latest_position
), owners AS (
    SELECT *, CASE WHEN usage_was_last THEN user_before ELSE waited_before END AS last_owner,
        next IS NOT DISTINCT FROM -1 AS behind_end
    FROM causes
), causers AS (
    SELECT i, p_from, p_to, whole,
        CASE WHEN behind_end THEN 'minimum charge'
            WHEN is_head THEN 'head node'
            WHEN node_number IS NULL THEN 'other machines'
            WHEN never_up AND usages = 0 THEN 'failed launch'
            WHEN waiting IS NOT NULL THEN CASE WHEN started > 0 THEN 'wait for nodes' ELSE 'boot' END
            WHEN last_owner IS NULL OR static THEN 'idle'
            WHEN has_later_usage OR has_later_wait THEN 'idle gap'
            ELSE 'idle tail' END::component AS component,
        CASE WHEN behind_end THEN last_owner
            WHEN is_head OR node_number IS NULL THEN NULL
            WHEN never_up AND usages = 0 THEN coalesce(waiting, last_owner)
            WHEN waiting IS NOT NULL THEN waiting
            WHEN static THEN NULL
            ELSE last_owner END AS attempt
    FROM owners
)
SELECT i, component, CASE WHEN p.hidden IS NULL THEN attempt END AS attempt, p_from AS l_from,
    p_to AS l_to, whole AS part, p_from * 67108864 AS place
FROM causers LEFT JOIN payers AS p USING (component)
WHERE NOT coalesce(p.hidden, false);

CREATE OR REPLACE TEMP TABLE used AS
WITH clipped AS (
    SELECT u.i, u.attempt, u.position, u.lost_from, greatest(u.u_start, b.lo) AS c_from,
        least(u.u_end, b.used_until) AS c_to,
        b.whole // u.below::BIGINT * u.above::BIGINT AS part, b.whole, b.overlap
    FROM usages AS u JOIN bills AS b USING (i)
), halves AS (
    SELECT *, 'useful work'::component AS component, c_from AS l_from,
        least(c_to, coalesce(lost_from, c_to)) AS l_to
    FROM clipped
    UNION ALL
    SELECT *, 'lost work'::component, greatest(c_from, lost_from), c_to
    FROM clipped WHERE lost_from IS NOT NULL
)
SELECT i, component, attempt, l_from, l_to, part, l_from * 67108864 + position AS place, whole,
    overlap
FROM halves WHERE l_from < l_to;

INSERT INTO lines SELECT * EXCLUDE (whole, overlap) FROM used;

-- Where usages overlap: how much of the instance all of them have, from each change on.
CREATE OR REPLACE TEMP TABLE totals AS
WITH changes AS (
    SELECT i, l_from AS second, part FROM used WHERE overlap
    UNION ALL
    SELECT i, l_to, -part FROM used WHERE overlap
)
SELECT i, second, lead(second) OVER in_order AS next_second, sum(part) OVER in_order AS part
FROM changes
WINDOW in_order AS (PARTITION BY i ORDER BY second)
QUALIFY second < next_second;

INSERT INTO hard
SELECT DISTINCT i, 'its jobs have more than the whole of it' FROM totals JOIN bills USING (i)
WHERE part > whole;

-- The part of a busy instance that no job has.
INSERT INTO lines
WITH rest AS (
    SELECT i, l_from, l_to, whole - part AS part FROM used WHERE NOT overlap AND part < whole
    UNION ALL
    SELECT i, second, next_second, (b.whole - t.part)::BIGINT
    FROM totals AS t JOIN bills AS b USING (i)
    WHERE t.part > 0 AND t.part < b.whole
)
SELECT i, 'unallocated', NULL, l_from, l_to, part, l_from * 67108864 + 67108863 FROM rest
WHERE 'unallocated' NOT IN (SELECT component FROM payers WHERE hidden);

DROP TABLE billed;
DROP TABLE wholes;
DROP TABLE latest_usages;
DROP TABLE ordered_waits;
DROP TABLE waits_of;
DROP TABLE pieces;
DROP TABLE cuts;
DROP TABLE piece_waits;
DROP TABLE used;
DROP TABLE totals;
