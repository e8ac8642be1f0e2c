-- The start and the end of each instance's bill, by the best evidence: `toolkit/accounting/lives.py`.
--
-- In:  attempts_of_nodes(pair, attempt, node_number, started, begun, ended, certainly_ran,
--      ended_by_slurm, found_dead), instances, variable now.
-- Out: latest(pair, attempt, node_number, started, begun, i): the newest instance launched until
--      the start;
--      lives: the instances with the start and the end of their bills.

CREATE OR REPLACE TEMP TABLE node_instances AS
SELECT i, node_number, launched, coalesce(ended, getvariable('now')) AS life_end,
    max(coalesce(ended, getvariable('now'))) OVER earlier AS earlier_end
FROM instances
WHERE node_number IS NOT NULL AND NOT is_head
WINDOW earlier AS (
    PARTITION BY node_number ORDER BY i ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
);

-- Of two instances launched in one second the one with the greater id is the newer.
CREATE OR REPLACE TEMP TABLE newest AS
SELECT node_number, launched, max(i) AS i FROM node_instances GROUP BY node_number, launched;

CREATE OR REPLACE TEMP TABLE latest AS
SELECT p.*, n.i
FROM (SELECT * FROM attempts_of_nodes SEMI JOIN newest USING (node_number)) AS p
    ASOF LEFT JOIN newest AS n ON p.node_number = n.node_number AND p.started >= n.launched;

CREATE OR REPLACE TEMP TABLE evidence AS
WITH pairs AS (
    SELECT l.* FROM latest AS l JOIN node_instances AS n USING (i)
    WHERE n.life_end >= l.started
    UNION ALL
    -- The newest had ended already, and an older one lives on: two of one name overlap.
    SELECT l.* EXCLUDE (i), max(older.i) AS i
    FROM latest AS l JOIN node_instances AS n USING (i)
        JOIN node_instances AS older ON older.node_number = l.node_number
            AND older.i < l.i AND older.life_end >= l.started
    WHERE n.life_end < l.started AND n.earlier_end >= l.started
    GROUP BY ALL
), next_launches AS (
    SELECT node_number, launched,
        lead(launched) OVER (PARTITION BY node_number ORDER BY launched) AS next_launch
    FROM newest
)
SELECT p.i,
    min(p.started) FILTER (p.certainly_ran) AS first_second,
    max(least(coalesce(nullif(p.ended, 0), p.started), n.life_end,
        coalesce(x.next_launch, getvariable('now'))))
        FILTER (p.certainly_ran OR p.ended_by_slurm) AS last_second,
    bool_or(p.found_dead) AS found_dead
FROM pairs AS p JOIN node_instances AS n USING (i)
    JOIN next_launches AS x ON x.node_number = n.node_number AND x.launched = n.launched
GROUP BY p.i;

-- Slurm powers a node down for its newest instance. A node found dead was powered down late.
CREATE OR REPLACE TEMP TABLE power_downs AS
SELECT p.i, least(p.powered_down, coalesce(n.launched, getvariable('now'))) AS powered_down
FROM (SELECT * FROM instances WHERE powered_down IS NOT NULL) AS p
    ASOF LEFT JOIN newest AS n ON n.node_number = p.node_number AND p.launched < n.launched
    LEFT JOIN evidence AS e ON e.i = p.i
WHERE NOT coalesce(e.found_dead, false);

ALTER TABLE latest DROP COLUMN ended;
ALTER TABLE latest DROP COLUMN certainly_ran;
ALTER TABLE latest DROP COLUMN ended_by_slurm;
ALTER TABLE latest DROP COLUMN found_dead;

CREATE OR REPLACE TEMP TABLE lives AS
WITH known AS (
    SELECT instances.* EXCLUDE (powered_down), e.first_second,
        greatest(launched, coalesce(running, 0), coalesce(seen_at, 0), coalesce(e.last_second, 0),
            coalesce(d.powered_down, 0)) AS last_sign
    FROM instances LEFT JOIN evidence AS e USING (i) LEFT JOIN power_downs AS d USING (i)
), ends AS (
    SELECT *,
        CASE WHEN end_seen THEN ended
            WHEN ended IS NULL THEN last_sign
            ELSE greatest(least(ended, last_sign), launched) END AS bill_ended,
        greatest(launched, CASE WHEN first_second IS NULL THEN running
            ELSE least(running, first_second) END) AS ran_from
    FROM known
)
SELECT * EXCLUDE (ended, ran_from, last_sign, first_second, bill_ended),
    bill_ended AS ended,
    -- The first pass runs on the head itself, so it proves nothing of the head.
    CASE WHEN running IS NULL OR is_head THEN launched
        WHEN bill_ended IS NULL THEN ran_from
        ELSE least(ran_from, greatest(bill_ended, launched)) END AS billed_from,
    coalesce(bill_ended, getvariable('now')) AS life_end
FROM ends;

DROP TABLE node_instances;
DROP TABLE newest;
DROP TABLE evidence;
DROP TABLE power_downs;
DROP TABLE instances;
