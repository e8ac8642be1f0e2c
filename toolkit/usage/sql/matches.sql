-- Attempts and the instances of their nodes: `toolkit/accounting/attempt_instances.py`.
--
-- In:  latest, lives, tries, attempts_of_nodes, variables now, until.
-- Out: usages(i, position, attempt, u_start, u_end, above, below, lost_from, earlier_end): the
--      attempt has above / below of the instance, and earlier ones used it until earlier_end;
--      waits(i, attempt, w_start, w_end).

CREATE OR REPLACE TEMP TABLE node_lives AS
SELECT i, node_number, launched, life_end, never_up,
    max(life_end) OVER (
        PARTITION BY node_number ORDER BY i ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS earlier_end
FROM lives
WHERE node_number IS NOT NULL AND NOT is_head AND launched < getvariable('until');

-- What began behind the window changes none of its charges.
CREATE OR REPLACE TEMP TABLE begun AS
SELECT l.*
FROM latest AS l LEFT JOIN lives AS n USING (i)
WHERE l.begun < getvariable('until') AND coalesce(n.launched, 0) < getvariable('until');

INSERT INTO begun
WITH earlier AS (
    SELECT node_number, launched, max(i) AS i FROM node_lives GROUP BY node_number, launched
)
SELECT l.*, n.i
FROM (
    SELECT latest.* EXCLUDE (i) FROM latest JOIN lives AS n USING (i)
    WHERE latest.begun < getvariable('until') AND n.launched >= getvariable('until')
) AS l ASOF LEFT JOIN earlier AS n ON n.node_number = l.node_number AND l.started >= n.launched;

-- Nearly always exactly one instance of the node is alive at the start.
CREATE OR REPLACE TEMP TABLE own AS
SELECT l.pair, l.attempt, l.i
FROM begun AS l JOIN node_lives AS n USING (i)
WHERE n.life_end > l.started AND coalesce(n.earlier_end, -1) <= l.started;

INSERT INTO own
WITH others AS (
    SELECT l.*, t.ended AS t_ended, coalesce(t.ended, getvariable('now')) AS t_end
    FROM begun AS l ANTI JOIN own USING (pair)
    JOIN tries AS t USING (attempt)
), candidates AS (
    SELECT o.pair, o.attempt, n.i, n.launched <= o.started AND o.started < n.life_end AS is_live,
        NOT n.never_up AS came_up,
        least(o.t_end, n.life_end) - greatest(o.started, n.launched) AS overlap,
        -- An attempt of no second may end with its instance.
        CASE WHEN o.t_ended = o.started THEN 0 ELSE 1 END AS least_overlap
    FROM others AS o JOIN node_lives AS n ON n.node_number = o.node_number
        AND n.launched <= greatest(o.started, o.t_end) AND n.life_end >= o.started
)
SELECT pair, attempt, i
FROM candidates
WHERE is_live OR overlap >= least_overlap
QUALIFY row_number() OVER (
    PARTITION BY pair ORDER BY is_live DESC, came_up DESC, overlap DESC, i DESC
) = 1;

-- Attempts that never got beyond waiting for their nodes.
CREATE OR REPLACE TEMP TABLE waiting AS
SELECT DISTINCT attempt
FROM own JOIN tries AS t USING (attempt) JOIN lives AS n USING (i)
WHERE NOT t.certainly_ran AND t.started < n.launched;

CREATE OR REPLACE TEMP TABLE waits AS
WITH launched_for AS (
    SELECT attempt, i FROM own SEMI JOIN waiting USING (attempt)
    UNION
    SELECT t.attempt, n.i
    FROM waiting JOIN tries AS t USING (attempt) JOIN attempts_of_nodes AS p USING (attempt)
        JOIN node_lives AS n ON n.node_number = p.node_number AND n.launched >= t.started
            AND n.launched < coalesce(t.ended, getvariable('now')) AND n.life_end >= t.started
)
SELECT i, attempt, greatest(t.started, n.launched) AS w_start,
    greatest(t.started, n.launched, least(coalesce(t.ended, getvariable('now')), n.life_end))
        AS w_end
FROM launched_for JOIN tries AS t USING (attempt) JOIN lives AS n USING (i);

CREATE OR REPLACE TEMP TABLE used AS
SELECT o.i, t.attempt, greatest(t.started, n.launched) AS u_start,
    greatest(t.started, n.launched, least(coalesce(t.ended, getvariable('now')), n.life_end))
        AS u_end,
    t.lost_from, t.started, t.submitted, t.start_group, n.launched, t.cpus, t.memory_mib, t.gpus,
    t.nodes, n.shape_cpus, n.shape_memory, n.shape_gpus
FROM (SELECT * FROM own ANTI JOIN waiting USING (attempt)) AS o
    JOIN tries AS t USING (attempt) JOIN lives AS n USING (i);

-- The dominant share of a node. Few sizes of jobs meet few sizes of instances.
CREATE OR REPLACE TEMP TABLE sizes AS
WITH pairs AS (
    SELECT DISTINCT cpus, memory_mib, gpus, nodes, shape_cpus, shape_memory, shape_gpus FROM used
), wholes AS (
    SELECT *, greatest(shape_cpus, 1)::HUGEINT * greatest(shape_memory, 1)
        * greatest(shape_gpus, 1) AS whole
    FROM pairs
), parts AS (
    SELECT *, nodes * whole AS all_nodes, greatest(
        CASE WHEN shape_cpus > 0 THEN cpus * (whole // shape_cpus) ELSE 0 END,
        CASE WHEN shape_memory > 0 THEN memory_mib * (whole // shape_memory) ELSE 0 END,
        CASE WHEN shape_gpus > 0 THEN gpus * (whole // shape_gpus) ELSE 0 END) AS part
    FROM wholes
), shares AS (
    SELECT *, CASE WHEN part = 0 THEN all_nodes ELSE least(part, all_nodes) END AS numerator
    FROM parts
)
SELECT * EXCLUDE (whole, all_nodes, part, numerator),
    (numerator // gcd(numerator, all_nodes)) AS above,
    (all_nodes // gcd(numerator, all_nodes)) AS below
FROM shares;

CREATE OR REPLACE TEMP TABLE usages AS
WITH shared AS (
    SELECT i, attempt, u_start, u_end, above, below, lost_from, started, submitted, start_group,
        launched
    FROM used
        JOIN sizes USING (cpus, memory_mib, gpus, nodes, shape_cpus, shape_memory, shape_gpus)
)
SELECT *, row_number() OVER in_order AS position,
    max(u_end) OVER (in_order ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS earlier_end
FROM shared
WINDOW in_order AS (PARTITION BY i ORDER BY u_start, attempt);

-- The first user of an instance waited for it. Attempts that start together, and for which one was
-- launched, had their other nodes from that launch on.
INSERT INTO waits
WITH first_launches AS (
    SELECT start_group, min(launched) AS launch
    FROM usages WHERE position = 1 AND launched >= submitted AND launched < started
    GROUP BY start_group
), begun AS (
    SELECT u.i, u.attempt, u.started AS w_end,
        CASE WHEN u.position = 1 THEN greatest(u.launched, u.submitted)
            WHEN f.launch IS NOT NULL THEN greatest(u.launched, f.launch) END AS w_start
    FROM usages AS u LEFT JOIN first_launches AS f USING (start_group)
)
SELECT i, attempt, w_start, w_end FROM begun WHERE w_start < w_end;

DROP TABLE node_lives;
DROP TABLE begun;
DROP TABLE own;
DROP TABLE waiting;
DROP TABLE used;
DROP TABLE sizes;
