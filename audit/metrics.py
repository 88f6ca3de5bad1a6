from prometheus_client import Counter, Gauge, Histogram

alerts = Counter("toolcrib_alerts_total", "Alerts that were raised, by rule.", ["rule"])
deliveries = Counter("toolcrib_alert_deliveries_total", "Attempts to tell an alert.", ["outcome"])
seal_lag = Histogram(
    "toolcrib_audit_seal_lag_seconds",
    "From a record's writing to its place in the log.",
    buckets=(0.1, 0.25, 0.5, 1, 2, 5, 10, 60, 600),
)
unsealed_age = Gauge(
    "toolcrib_audit_unsealed_age_seconds",
    "Age of the oldest record without a place; grows while a transaction stays open.",
    multiprocess_mode="mostrecent",
)
logs_halted = Gauge(
    "toolcrib_audit_logs_halted",
    "Logs that are behind what was published of them; their organizations execute nothing.",
    multiprocess_mode="mostrecent",
)
checkpoints_signed = Counter("toolcrib_audit_checkpoints_total", "Checkpoints that were signed.")
forged = Counter("toolcrib_audit_forged_total", "Records found that Toolcrib did not write.")
anchor_deliveries = Counter(
    "toolcrib_audit_anchor_deliveries_total",
    "Attempts to leave a checkpoint elsewhere.",
    ["outcome"],
)
partitions_ahead = Gauge(
    "toolcrib_partitions_ahead",
    "Months after this one for which a table has partitions already; below 1 they run out.",
    ["table"],
    multiprocess_mode="mostrecent",
)
