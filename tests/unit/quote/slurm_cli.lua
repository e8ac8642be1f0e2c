-- What Slurm's cli_filter/lua gives a script: the table slurm, and options by name.
-- Usage: lua slurm_cli.lua CLI_FILTER NOW [NAME=VALUE...]; it prints the return codes, and each
-- option that the script sets. As in the plugin, an option takes text, and can't be unset.

slurm = { SUCCESS = 0, ERROR = -1 }

local now = tonumber(arg[2])
os.time = function() return now end

dofile(arg[1])

local given = {}
for index = 3, #arg do
  local name, value = string.match(arg[index], "^([^=]+)=(.*)$")
  given[name] = value
end
local options = setmetatable({}, {
  __index = function(_, name) return given[name] end,
  __newindex = function(_, name, value)
    if type(value) ~= "string" then
      error("an option takes text")
    end
    given[name] = value
    print("set: " .. name .. "=" .. value)
  end,
})
print("defaults: " .. slurm_cli_setup_defaults(options, true))
print("submit: " .. slurm_cli_pre_submit(options, 0))
print("after: " .. slurm_cli_post_submit(0, 1, 1))
