"""Two linters: of a batch script, and of a slurm.conf. Their findings are one `Finding`.

Rules only. What slurm.conf we write ourselves is in `render`.
"""
