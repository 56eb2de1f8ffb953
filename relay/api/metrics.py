"""What the API measures."""

from prometheus_client import CollectorRegistry, Counter, Histogram

ROUTES: dict[str, tuple[int, ...]] = {
    "POST /v1/notifications": (200, 202, 400, 401, 413, 415, 422, 503),
    "GET /v1/notifications": (200, 401, 404, 422, 503),
    "GET /v1/notifications/{id}": (200, 401, 404, 503),
    "GET /v1/notifications/{id}/explain": (200, 401, 404, 503),
    "POST /v1/resolutions": (202, 400, 401, 413, 415, 422, 503),
    "PUT /v1/recipients/{recipient}": (202, 400, 401, 413, 415, 422, 503),
    "DELETE /v1/recipients/{recipient}": (202, 401, 422, 503),
    "POST /v1/receipts": (202, 400, 401, 404, 413, 415, 422, 503),
    "GET /healthz": (200,),
    "GET /readyz": (200, 503),
}
"""Every route and the statuses that it is made to answer; each series starts at zero."""
OTHER = "other"
"""The label of requests that no route takes: their paths are the caller's, and unbounded."""


class ApiMetrics:
    """The API's metrics, in a registry that is handed in."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "rung_api_requests_total", "Requests by route and answer", ["route", "status"], registry=registry
        )
        self.seconds = Histogram(
            "rung_api_request_seconds", "Time from a request's head to its answer", ["route"], registry=registry
        )
        for route, statuses in ROUTES.items():
            self.seconds.labels(route)
            for status in statuses:
                self.requests.labels(route, str(status))
        self.seconds.labels(OTHER)
        for status in (401, 404, 405):
            self.requests.labels(OTHER, str(status))

    def observe(self, route: str, status: int, seconds: float) -> None:
        """Count one answered request."""
        label = route if route in ROUTES else OTHER
        self.requests.labels(label, str(status)).inc()
        self.seconds.labels(label).observe(seconds)
