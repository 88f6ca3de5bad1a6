from prometheus_client import Counter

alerts = Counter("toolcrib_alerts_total", "Alerts that were raised, by rule.", ["rule"])
