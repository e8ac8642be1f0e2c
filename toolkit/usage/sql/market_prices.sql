-- The prices of spot instances whose market has a history: `toolkit/accounting/instance_hours.py`.
--
-- In:  lives, market_prices(number, market, second, next_second, pico), variables since, until,
--      minimum_seconds.
-- Out: spans(i, s_start, s_end, pico, known, is_exact, source), of each instance all or none.

CREATE OR REPLACE TEMP TABLE market_spans AS
WITH ends AS (
    SELECT i, market, billed_from, greatest(billed_from, getvariable('since')) AS lo,
        least(CASE WHEN ended IS NULL THEN getvariable('until')
            ELSE greatest(ended, billed_from + getvariable('minimum_seconds')) END,
            getvariable('until')) AS hi
    FROM lives WHERE market IS NOT NULL AND NOT never_ran AND NOT stopped
), billed AS (
    -- A price holds from the next beginning of an instance-hour on.
    SELECT *, lo - (lo - billed_from) % 3600 AS first_hour FROM ends WHERE lo < hi
), bounds AS (
    SELECT b.*, f.number AS first_number, l.number AS last_number
    FROM billed AS b
        ASOF JOIN market_prices AS f ON f.market = b.market AND b.first_hour >= f.second
        ASOF JOIN market_prices AS l ON l.market = b.market AND b.hi - 1 >= l.second
), numbers AS (
    SELECT i, billed_from, lo, hi, first_hour, unnest(range(first_number, last_number + 1)) AS number
    FROM bounds
), held AS (
    SELECT n.*, p.pico, greatest(p.second, first_hour) AS begin, p.next_second AS until
    FROM numbers AS n JOIN market_prices AS p USING (number)
)
SELECT i, greatest(begin + (3600 - (begin - billed_from) % 3600) % 3600, lo) AS s_start,
    least(until + (3600 - (until - billed_from) % 3600) % 3600, hi) AS s_end, pico
FROM held;

CREATE OR REPLACE TEMP TABLE spans AS
WITH not_known AS (SELECT i FROM market_spans WHERE pico IS NULL)
SELECT i, s_start, s_end, pico, true AS known, true AS is_exact, 'history' AS source
FROM market_spans ANTI JOIN not_known USING (i)
WHERE s_start < s_end;

DROP TABLE market_spans;
