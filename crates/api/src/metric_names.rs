//! The names of the metrics about requests. No label has an id or a tenant.

use metrics::{Unit, describe_counter, describe_histogram};

/// Requests that were answered, by route, method and class of status.
pub const REQUESTS: &str = "http_requests_total";
/// The time that responses took, by route.
pub const REQUEST_DURATION: &str = "http_request_duration_seconds";
/// Requests that were answered 401.
pub const UNAUTHORIZED: &str = "http_unauthorized_total";
/// Connections that were closed because there were too many.
pub const CONNECTIONS_CUT: &str = "http_connections_cut_total";
/// Requests that the store could not carry out.
pub const NOT_CARRIED_OUT: &str = "http_requests_not_carried_out_total";

/// Describes the metrics to the recorder. Call it once, after the recorder is installed.
pub fn describe() {
    let took = "time from a request's headers to its response, by route";
    describe_histogram!(REQUEST_DURATION, Unit::Seconds, took);
    for (counter, description) in [
        (
            REQUESTS,
            "requests answered, by route, method and class of status",
        ),
        (
            UNAUTHORIZED,
            "requests without a token, or with an unknown one",
        ),
        (
            NOT_CARRIED_OUT,
            "requests that the store could not carry out",
        ),
        (
            CONNECTIONS_CUT,
            "connections closed because of their number",
        ),
    ] {
        describe_counter!(counter, description);
    }
}
