-- What each second of an instance went to: `toolkit/accounting/timeline.py`.
--
-- In:  lives, usages, waits, spans(i, s_start, s_end, pico, known, is_exact, source) within the
--      billed time, payers(component, hidden), variables since, until, minimum_seconds.
-- Out: bills: the billed time of each instance, lo ≤ t < hi, with its prices and its whole;
--      lines(i, component, attempt, l_from, l_to, part, u_start, day): part of the whole;
--      hard: instances that the exact engine divides, since these statements can't.

CREATE OR REPLACE TEMP TABLE hard(i BIGINT, reason VARCHAR);

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
SELECT i, bool_and(known) AS known, min(pico) = max(pico) AS is_uniform,
    string_agg(DISTINCT source, ',' ORDER BY source) AS sources,
    CASE WHEN min(pico) = max(pico) THEN greatest(min(pico), 1)
        ELSE list_reduce(list(DISTINCT pico), lambda x, y: gcd(x, y)) END AS unit
FROM spans
GROUP BY i;

INSERT INTO hard
SELECT i, 'a part of its price is unknown' FROM spans
GROUP BY i HAVING bool_or(known) AND NOT bool_and(known) OR NOT bool_and(is_exact);

-- The whole: one denominator for all shares of an instance.
CREATE OR REPLACE TEMP TABLE wholes AS
SELECT i, count(*) AS usages, max(u_end) AS last_end,
    bool_or(u_start < earlier_end) AS overlap,
    CASE WHEN max(below) = 1 THEN 1
        WHEN list_sum(list_transform(list(DISTINCT below), lambda x: log10(x))) > 15 THEN NULL
        ELSE list_reduce(list(DISTINCT below::BIGINT), lambda x, y: lcm(x, y)) END AS whole
FROM usages SEMI JOIN billed USING (i)
GROUP BY i;

INSERT INTO hard SELECT i, 'its shares have no small denominator' FROM wholes WHERE whole IS NULL;

CREATE OR REPLACE TEMP TABLE bills AS
SELECT b.*, p.known, p.is_uniform, p.unit, coalesce(w.usages, 0) AS usages, w.last_end,
    coalesce(w.overlap, false) AS overlap, coalesce(w.whole, 1) AS whole
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
CREATE OR REPLACE TEMP TABLE segments AS
WITH gaps AS (
    SELECT u.i, u.position - 1 AS started, u.position AS next,
        greatest(coalesce(u.earlier_end, b.lo), b.lo) AS g_from,
        least(u.u_start, b.used_until) AS g_to,
        u.u_start < getvariable('until') AS has_later_usage
    FROM usages AS u JOIN bills AS b USING (i)
    UNION ALL
    SELECT i, usages, NULL, greatest(coalesce(last_end, lo), lo), used_until, false FROM bills
    UNION ALL
    -- The rest of the first minute, which is billed behind the end.
    SELECT i, usages, -1, greatest(alive_end, lo), hi, false FROM bills WHERE alive_end < hi
), real_gaps AS (
    SELECT * FROM gaps WHERE g_from < g_to
), latest AS (
    SELECT i, position, latest FROM latest_usages
    UNION ALL
    SELECT DISTINCT i, NULL, last FROM latest_usages
)
SELECT row_number() OVER () AS segment, g.*,
    coalesce(l.latest, g.started) AS latest_position
FROM real_gaps AS g
    LEFT JOIN latest AS l ON l.i = g.i
        AND l.position IS NOT DISTINCT FROM CASE WHEN g.next = -1 THEN NULL ELSE g.next END;

CREATE OR REPLACE TEMP TABLE ordered_waits AS
SELECT w.i, w.attempt, w.w_start, w.w_end, greatest(w.w_start, b.lo) AS first_seen,
    row_number() OVER (PARTITION BY w.i ORDER BY w.w_end, w.attempt) AS by_end,
    row_number() OVER (PARTITION BY w.i ORDER BY w.w_end, greatest(w.w_start, b.lo), w.w_start,
        w.attempt) AS by_latest
FROM waits AS w JOIN bills AS b USING (i);

INSERT INTO hard
WITH many_waits AS (SELECT i, count(*) AS waits FROM ordered_waits GROUP BY i),
    many_gaps AS (SELECT i, count(*) AS gaps FROM segments GROUP BY i)
SELECT i, 'it has many waits' FROM many_waits JOIN many_gaps USING (i) WHERE waits * gaps > 20000;

-- The segments, cut where a wait begins or ends.
CREATE OR REPLACE TEMP TABLE pieces AS
WITH cuts AS (
    SELECT s.segment, w.w_start AS second FROM segments AS s JOIN ordered_waits AS w USING (i)
    WHERE s.g_from < w.w_start AND w.w_start < s.g_to AND s.next IS DISTINCT FROM -1
    UNION
    SELECT s.segment, w.w_end FROM segments AS s JOIN ordered_waits AS w USING (i)
    WHERE s.g_from < w.w_end AND w.w_end < s.g_to AND s.next IS DISTINCT FROM -1
), begun AS (
    SELECT segment, g_from AS second FROM segments SEMI JOIN cuts USING (segment)
    UNION ALL SELECT segment, second FROM cuts
), cut AS (
    SELECT b.segment, b.second AS p_from,
        lead(b.second, 1, s.g_to) OVER (PARTITION BY b.segment ORDER BY b.second) AS p_to
    FROM begun AS b JOIN segments AS s USING (segment)
), whole_segments AS (
    SELECT segment, g_from AS p_from, g_to AS p_to FROM segments ANTI JOIN cuts USING (segment)
), all_pieces AS (
    SELECT * FROM cut UNION ALL SELECT * FROM whole_segments
)
SELECT row_number() OVER () AS piece, s.i, s.started, s.next, s.has_later_usage, s.latest_position,
    p.p_from, p.p_to
FROM all_pieces AS p JOIN segments AS s USING (segment);

CREATE OR REPLACE TEMP TABLE piece_waits AS
SELECT p.piece, min(w.by_end) FILTER (w.w_end > p.p_from) AS active, max(w.by_latest) AS latest_wait,
    count(*) AS begun
FROM pieces AS p JOIN ordered_waits AS w ON w.i = p.i AND w.w_start <= p.p_from
GROUP BY p.piece;

-- The line of each piece without a usage.
CREATE OR REPLACE TEMP TABLE unused AS
WITH waits_of AS (
    SELECT i, count(*) AS waits FROM ordered_waits
    WHERE w_start < getvariable('until') GROUP BY i
),
causes AS (
    SELECT p.*, b.is_head, b.node, b.never_up, b.static, b.usages, a.attempt AS waiting,
        u.attempt AS user_before, l.attempt AS waited_before,
        -- The later end wins; of equal ones the one that began later, a wait before a usage.
        u.attempt IS NOT NULL AND (l.attempt IS NULL OR u.u_end > l.w_end OR (u.u_end = l.w_end
            AND greatest(u.u_start, b.lo) > l.first_seen)) AS usage_was_last,
        coalesce(w.waits, 0) > coalesce(x.begun, 0) AS has_later_wait
    FROM pieces AS p JOIN bills AS b USING (i)
        LEFT JOIN waits_of AS w ON w.i = p.i
        LEFT JOIN piece_waits AS x ON x.piece = p.piece
        LEFT JOIN ordered_waits AS a ON a.i = p.i AND a.by_end = x.active
        LEFT JOIN ordered_waits AS l ON l.i = p.i AND l.by_latest = x.latest_wait
        LEFT JOIN usages AS u ON u.i = p.i AND u.position = p.latest_position
), owners AS (
    SELECT *, CASE WHEN usage_was_last THEN user_before ELSE waited_before END AS last_owner,
        next IS NOT DISTINCT FROM -1 AS behind_end
    FROM causes
), causers AS (
    SELECT i, p_from, p_to,
        CASE WHEN behind_end THEN 'minimum charge'
            WHEN is_head THEN 'head node'
            WHEN node = '' THEN 'other machines'
            WHEN never_up AND usages = 0 THEN 'failed launch'
            WHEN waiting IS NOT NULL THEN CASE WHEN started > 0 THEN 'wait for nodes' ELSE 'boot' END
            WHEN last_owner IS NULL OR static THEN 'idle'
            WHEN has_later_usage OR has_later_wait THEN 'idle gap'
            ELSE 'idle tail' END AS component,
        CASE WHEN behind_end THEN last_owner
            WHEN is_head OR node = '' THEN NULL
            WHEN never_up AND usages = 0 THEN coalesce(waiting, last_owner)
            WHEN waiting IS NOT NULL THEN waiting
            WHEN static THEN NULL
            ELSE last_owner END AS attempt
    FROM owners
)
SELECT i, p_from, p_to, component, CASE WHEN p.hidden IS NULL THEN attempt END AS attempt
FROM causers LEFT JOIN payers AS p USING (component)
WHERE NOT coalesce(p.hidden, false);

CREATE OR REPLACE TEMP TABLE used AS
WITH clipped AS (
    SELECT u.i, u.attempt, u.u_start, u.lost_from, greatest(u.u_start, b.lo) AS c_from,
        least(u.u_end, b.used_until) AS c_to, b.whole // u.below * u.above AS part
    FROM usages AS u JOIN bills AS b USING (i)
), halves AS (
    SELECT *, 'useful work' AS component, c_from AS l_from,
        least(c_to, coalesce(lost_from, c_to)) AS l_to
    FROM clipped
    UNION ALL
    SELECT *, 'lost work', greatest(c_from, lost_from), c_to FROM clipped WHERE lost_from IS NOT NULL
)
SELECT i, component, attempt, l_from, l_to, part, u_start FROM halves WHERE l_from < l_to;

-- Cut at midnight, so that each part is of one day.
CREATE OR REPLACE TEMP TABLE lines AS
WITH whole_lines AS (
    SELECT i, component, attempt, l_from, l_to, part::HUGEINT AS part, u_start FROM used
    UNION ALL
    SELECT n.i, component, attempt, p_from, p_to, b.whole, 0
    FROM unused AS n JOIN bills AS b USING (i)
)
SELECT *, l_from // 86400 AS day FROM whole_lines WHERE l_from // 86400 = (l_to - 1) // 86400
UNION ALL
SELECT i, component, attempt, greatest(l_from, day * 86400), least(l_to, (day + 1) * 86400), part,
    u_start, day
FROM (
    SELECT *, unnest(range(l_from // 86400, (l_to - 1) // 86400 + 1)) AS day
    FROM whole_lines WHERE l_from // 86400 <> (l_to - 1) // 86400
);

-- Where usages overlap: how much of the instance all of them have, from each change on.
CREATE OR REPLACE TEMP TABLE totals AS
WITH changes AS (
    SELECT u.i, l_from AS second, part FROM used AS u JOIN bills AS b USING (i) WHERE overlap
    UNION ALL
    SELECT u.i, l_to, -part FROM used AS u JOIN bills AS b USING (i) WHERE overlap
), midnights AS (
    SELECT i, unnest(range(lo // 86400 + 1, (hi - 1) // 86400 + 1)) * 86400 AS second, 0 AS part
    FROM bills WHERE overlap
), steps AS (
    SELECT i, second, sum(part) AS change
    FROM (SELECT * FROM changes UNION ALL SELECT * FROM midnights) GROUP BY i, second
)
SELECT i, second, sum(change) OVER (PARTITION BY i ORDER BY second) AS part FROM steps;

INSERT INTO hard
SELECT DISTINCT i, 'its jobs have more than the whole of it' FROM totals JOIN bills USING (i)
WHERE part > whole;

DROP TABLE billed;
DROP TABLE wholes;
DROP TABLE latest_usages;
DROP TABLE segments;
DROP TABLE ordered_waits;
DROP TABLE pieces;
DROP TABLE piece_waits;
DROP TABLE unused;
DROP TABLE used;
