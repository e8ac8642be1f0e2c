-- demo: written by the toolkit. Change cluster.yaml, not this file.
--
-- sbatch, salloc and srun run this on the user's own host, before slurmctld knows the job. It prints
-- what the job would cost. It changes one option: a job of a workload class that names no partition
-- gets that of its class. It refuses jobs of projects whose budget says so, and no others. An error
-- in it is caught: with an error here, Slurm's plugin would refuse the submission
-- (cli_filter_lua.c, pre_submit).
--
-- It is Lua 5.1 to 5.4, whichever liblua Slurm finds (slurm_lua.c, slurm_lua_init).

local PRICES = "/shared/.toolkit/quote/prices.json"
local MOST_BYTES = 262144
local STALE = 3600 -- seconds after which the line tells the age of the prices, and no job is refused
local TOO_OLD = 86400 -- seconds after which there is no line
-- By workload class: the first of its partitions.
local PARTITION_OF_CLASS = {
}

-- JSON: objects, lists, texts without \u escapes, numbers, true, false, null.

local decode_value

local function skip_blanks(text, at)
  return string.find(text, "[^ \t\r\n]", at) or #text + 1
end

local function decode_text(text, at)
  local stop = string.find(text, '"', at + 1, true)
  local value = string.sub(text, at + 1, (stop or error("text without end")) - 1)
  if string.find(value, "\\", 1, true) then
    error("escapes are not read")
  end
  return value, stop + 1
end

local function decode_list(text, at)
  local list = {}
  at = skip_blanks(text, at + 1)
  while string.sub(text, at, at) ~= "]" do
    local value
    value, at = decode_value(text, at)
    list[#list + 1] = value
    at = skip_blanks(text, at)
    if string.sub(text, at, at) == "," then
      at = skip_blanks(text, at + 1)
    elseif string.sub(text, at, at) ~= "]" then
      error("list without end")
    end
  end
  return list, at + 1
end

local function decode_object(text, at)
  local object = {}
  at = skip_blanks(text, at + 1)
  while string.sub(text, at, at) ~= "}" do
    local key, value
    key, at = decode_text(text, at)
    at = skip_blanks(text, at)
    if string.sub(text, at, at) ~= ":" then
      error("key without value")
    end
    value, at = decode_value(text, at + 1)
    object[key] = value
    at = skip_blanks(text, at)
    if string.sub(text, at, at) == "," then
      at = skip_blanks(text, at + 1)
    elseif string.sub(text, at, at) ~= "}" then
      error("object without end")
    end
  end
  return object, at + 1
end

local WORDS = { ["true"] = true, ["false"] = false, ["null"] = "" }

function decode_value(text, at)
  at = skip_blanks(text, at)
  local first = string.sub(text, at, at)
  if first == "{" then
    return decode_object(text, at)
  elseif first == "[" then
    return decode_list(text, at)
  elseif first == '"' then
    return decode_text(text, at)
  end
  local word = string.match(text, "^[%w+.-]+", at) or error("no value")
  local value = tonumber(word)
  if value == nil then
    value = WORDS[word]
  end
  if value == nil then
    error("no value")
  end
  if value == "" then -- null is no key at all
    value = nil
  end
  return value, at + #word
end

local function read_prices()
  local file = io.open(PRICES, "r")
  if file == nil then
    return nil
  end
  local text = file:read(MOST_BYTES)
  file:close()
  if text == nil then
    return nil
  end
  local value = decode_value(text, 1)
  return type(value) == "table" and value.version == 1 and value or nil
end

-- Options, as Slurm's plugin gives them: texts, or nil.

local function count(text)
  local number = tonumber(string.match(text or "", "^%d+$") or "")
  return number and number > 0 and number < 1e9 and number or nil
end

local UNITS = { K = 1 / 1024, M = 1, G = 1024, T = 1048576 }

local function mebibytes(text)
  local number, unit = string.match(text or "", "^(%d+)([KMGT]?)")
  number = tonumber(number or "")
  number = number and number * (UNITS[unit] or 1)
  return number and number < 1e9 and number or nil
end

-- Of `a10g:4`, `4` and `gres/gpu:a10g:4`: the number and the kind.
local function gpus(text)
  local number, kind = 0, ""
  for part in string.gmatch(text or "", "[^,]+") do
    part = string.gsub(part, "^gres[/:]", "")
    local is_gres = string.match(part, "^gpu%f[^%w]") ~= nil
    local rest = string.gsub(part, "^gpu[:=]?", "")
    local named, amount = string.match(rest, "^([%a][%w_.-]*)[:=]?(%d*)$")
    if not named then
      named, amount = "", string.match(rest, "^(%d*)$")
    end
    if amount and (is_gres or amount ~= "") then
      number, kind = number + (tonumber(amount) or 1), named
    end
  end
  return number, kind
end

-- A list of GRES has others than GPUs.
local function gpus_of_gres(text)
  local number, kind = 0, ""
  for part in string.gmatch(text or "", "[^,]+") do
    if string.match(part, "^gres[/:]gpu%f[^%w]") or string.match(part, "^gpu%f[^%w]") then
      local own, own_kind = gpus(part)
      number, kind = number + own, own_kind
    end
  end
  return number, kind
end

-- mins2time_str in Slurm's parse_time.c writes DAYS-HH:MM:SS, HH:MM:SS or UNLIMITED.
local function hours(text)
  local days, h, m, s = string.match(text or "", "^(%d+)-(%d+):(%d+):(%d+)$")
  if not days then
    h, m, s = string.match(text or "", "^(%d+):(%d+):(%d+)$")
  end
  return h and (tonumber(days or 0) * 24 + h + m / 60 + s / 3600) or nil
end

local function tasks_of_array(text)
  local tasks = 0
  for part in string.gmatch(string.gsub(text or "", "%%.*$", ""), "[^,]+") do
    local first, last, step = string.match(part, "^(%d+)-(%d+):?(%d*)$")
    if first then
      step = tonumber(step) or 1
      tasks = tasks + math.floor((tonumber(last) - tonumber(first)) / math.max(step, 1)) + 1
    elseif string.match(part, "^%d+$") then
      tasks = tasks + 1
    end
  end
  return math.max(tasks, 1)
end

local function has_features(node, constraint)
  if not string.match(constraint or "", "^[%w_.&-]*$") then
    return true -- alternatives and counts are Slurm's to decide
  end
  for word in string.gmatch(constraint or "", "[^&]+") do
    local found = false
    for _, feature in ipairs(node.features or {}) do
      found = found or feature == word
    end
    if not found then
      return false
    end
  end
  return true
end

-- Return the nodes that a job takes of a pool, times the part of each that it pays for.
local function whole_nodes(options, partition, node)
  local least, most = string.match(options["nodes"] or "", "^(%d+)%-?(%d*)$")
  local nodes = math.max(tonumber(least) or 1, 1)
  most = tonumber(most) or tonumber(least) or 0 -- 0: any, as of `1-0` for a job that names none
  local per_node = count(options["ntasks-per-node"]) or 1
  local ntasks = math.max(count(options["ntasks"]) or 1, per_node * nodes)
  local number, kind = gpus(options["gpus"])
  if number == 0 then
    number, kind = gpus(options["gpus-per-task"])
    number = number * ntasks
  end
  if number == 0 then
    number, kind = gpus(options["gpus-per-node"])
    if number == 0 then
      number, kind = gpus_of_gres(options["gres"])
    end
    number = number * nodes
  end
  if number > 0 and (node.gpus == 0 or (kind ~= "" and kind ~= node.gpu)) then
    return nil
  end
  local per_task = count(options["cpus-per-task"])
  if per_task and per_task > node.cpus then
    return nil
  end
  local cpus = ntasks * (per_task or 1)
  if not per_task then
    cpus = math.max(cpus, number * (count(options["cpus-per-gpu"]) or partition.cpus_per_gpu))
  end
  local memory = cpus * partition.memory_per_cpu
  if number > 0 and partition.memory_per_gpu > 0 then
    memory = number * partition.memory_per_gpu
  end
  local of_node, of_cpu = mebibytes(options["mem"]), mebibytes(options["mem-per-cpu"])
  local of_gpu = mebibytes(options["mem-per-gpu"])
  if of_cpu then
    memory = of_cpu * cpus
  elseif of_gpu then
    memory = of_gpu * number
  elseif of_node then
    memory = (of_node > 0 and of_node or node.memory_mib) * nodes
  end
  nodes = math.max(nodes, math.ceil(cpus / node.cpus), math.ceil(memory / node.memory_mib))
  if number > 0 then
    nodes = math.max(nodes, math.ceil(number / node.gpus))
  end
  if nodes > node.count or (most > 0 and nodes > most) or not has_features(node, options["constraint"]) then
    return nil
  end
  if options["exclusive"] == "exclusive" then
    return nodes
  end
  local cpus_of_node = math.ceil(cpus / nodes / node.threads_of_core) * node.threads_of_core
  local part = math.max(cpus_of_node / node.cpus, memory / nodes / node.memory_mib)
  if number > 0 then
    part = math.max(part, number / nodes / node.gpus)
  end
  return nodes * math.min(part, 1)
end

-- Words

local function amount(usd)
  return string.format(usd < 10 and "%.2f" or "%.0f", usd)
end

local function duration(h)
  local minutes = math.floor(h * 60 + 0.5)
  local whole, rest = math.floor(minutes / 60), minutes % 60
  if whole == 0 then
    return string.format("%d m", rest)
  end
  return string.format(rest > 0 and "%d h %d m" or "%d h", whole, rest)
end

local function entry(object, key)
  return type(object) == "table" and key and object[key] or nil
end

local function account_and_project(prices, options)
  local account = options["account"] or entry(prices.default_accounts, os.getenv("USER"))
  account = account and string.lower(account) -- as slurmdbd has it
  local wckey = options["wckey"]
  if wckey and wckey ~= "" then
    return account, string.lower(wckey)
  end
  return account, entry(prices.account_projects, account)
end

-- Return the account or project of which less is left, and the amount.
local function remaining(prices, options)
  local account, project = account_and_project(prices, options)
  local of_account = tonumber(entry(prices.remaining, account))
  local of_project = tonumber(entry(prices.remaining_of_projects, project))
  if of_project and (not of_account or of_project < of_account) then
    return "project " .. project, of_project
  end
  return account, of_account
end

-- Return what is told of a grant that ended, if the job's did.
local function ended(prices, options)
  local account, project = account_and_project(prices, options)
  return entry(prices.ended_accounts, account) or entry(prices.ended_projects, project)
end

-- Return why a budget refuses the job, if it does.
local function refusal(prices, options, now)
  if now - (tonumber(prices.at) or 0) > STALE then
    return nil
  end
  local _, project = account_and_project(prices, options)
  return entry(prices.refused_projects, project)
end

-- Return a number of an object that may be damaged.
local function number_in(object, key)
  local value = tonumber(entry(object, key))
  return value and value >= 0 and value < 1e9 and value or nil
end

local function wait_words(name, wait)
  local seconds, jobs = number_in(wait, "seconds"), number_in(wait, "count")
  if not seconds or not jobs then
    return nil
  end
  local long = seconds < 60 and string.format("%.0f s", seconds) or duration(seconds / 3600)
  return string.format("wait in %s %s (median of %.0f)", name, long, jobs)
end

local function interruption_words(offer)
  local taken = number_in(offer.interruptions, "count")
  local instance_hours = number_in(offer.interruptions, "hours")
  if not taken or not instance_hours then
    return nil
  end
  local plural = taken == 1 and "" or "s"
  local words = "%.0f interruption%s in %.0f h of %s"
  return string.format(words, taken, plural, instance_hours, offer.type)
end

-- Return what is told of the budget; usd is the whole job's cost, if it has a bound.
local function budget_words(prices, options, usd)
  local grant = ended(prices, options)
  if grant then
    return grant
  end
  local account, left = remaining(prices, options)
  if not left then
    return nil
  end
  local words = string.format("%s has %.2f USD left in its budget", account, math.max(left, 0))
  return usd and usd > left and words .. ", less than this job may cost" or words
end

local function other_words(offer)
  local usd, buy = number_in(offer.other, "usd"), entry(offer.other, "buy")
  if not usd or not buy then
    return ""
  end
  local kind = entry(offer.other, "type")
  local place = kind and kind ~= offer.type and " on " .. kind or ""
  return string.format(", %s %.2f%s", buy, usd, place)
end

-- Return the line of the price, and a second one of what else is known.
local function lines(prices, options, now)
  local age = now - (tonumber(prices.at) or 0)
  if age > TOO_OLD then
    return nil
  end
  local name = string.match(options["partition"] or prices.default or "", "^[^,]+")
  local partition = name and prices.partitions[name]
  if not partition then
    return nil
  end
  for _, pool in ipairs(partition.pools) do
    local offer, node = partition.offers[pool], prices.nodes[pool]
    local nodes = offer and node and whole_nodes(options, partition, node)
    if nodes then
      local tasks = tasks_of_array(options["array"])
      local per_hour = nodes * tonumber(offer.usd)
      local limit = hours(options["time"])
      if not limit and not options["time"] and partition.max_minutes then
        limit = partition.max_minutes / 60
      end
      local words, usd
      if limit then
        usd = per_hour * limit * tasks
        local who = tasks > 1 and string.format("each of %d tasks runs", tasks) or "it runs"
        words = string.format("about %s USD if %s its %s", amount(usd), who, duration(limit))
      else
        words = string.format("no time limit: %s USD each hour", amount(per_hour * tasks))
      end
      words = string.format("%s; %s now %.2f USD/h on %s", words, offer.buy, offer.usd, offer.type)
      words = words .. other_words(offer)
      if age > STALE then
        words = string.format("%s, by prices of %s ago", words, duration(age / 3600))
      end
      local others = {}
      others[#others + 1] = wait_words(name, partition.wait)
      others[#others + 1] = interruption_words(offer)
      others[#others + 1] = budget_words(prices, options, usd)
      return words, table.concat(others, "; ")
    end
  end
  return nil
end

local function is_step(options)
  return options["type"] == "srun" and (os.getenv("SLURM_JOB_ID") or os.getenv("SLURM_JOBID"))
end

-- An option that neither the command, the environment nor the script gave is nil. slurmctld would
-- take the default partition then (slurm_option_get in slurm_opt.c). A reservation has a partition
-- of its own, and another cluster has other partitions.
local function choose_partition(options)
  local partition = PARTITION_OF_CLASS[string.lower(options["qos"] or "")]
  local elsewhere = options["reservation"] or options["clusters"]
  if partition and not options["partition"] and not elsewhere and not is_step(options) then
    options["partition"] = partition
  end
end

-- Print the lines, or why the job is refused; return true then.
local function check(options)
  local kind = options["type"]
  if is_step(options) then
    return false
  end
  local prices = read_prices()
  local words = prices and refusal(prices, options, os.time())
  if words then
    io.stderr:write(kind, ": refused by a budget: ", words, "\n")
    return true
  end
  if kind == "scrontab" or count(options["quiet"]) or os.getenv("TOOLKIT_QUOTE") == "off" then
    return false
  end
  if not prices then
    return false
  end
  local first, second = lines(prices, options, os.time())
  if first then
    io.stderr:write(kind, ": ", first, "\n") -- slurm.log_info would put "lua: " before it
  end
  if second and second ~= "" then
    io.stderr:write(kind, ": ", second, "\n")
  end
  return false
end

function slurm_cli_setup_defaults(options, early)
  return slurm.SUCCESS
end

function slurm_cli_pre_submit(options, offset)
  pcall(choose_partition, options)
  local whole, refused = pcall(check, options)
  return whole and refused and slurm.ERROR or slurm.SUCCESS
end

function slurm_cli_post_submit(offset, job_id, step_id)
  return slurm.SUCCESS
end
