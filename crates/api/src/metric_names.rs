//! The names of what is counted about requests. No label has an id or a tenant.

/// Requests that were answered, by route, method and class of status.
pub const REQUESTS: &str = "http_requests_total";
/// How long answers took, by route.
pub const REQUEST_DURATION: &str = "http_request_duration_seconds";
/// Requests that were answered 401.
pub const UNAUTHORIZED: &str = "http_unauthorized_total";
/// Connections that were closed because there were too many.
pub const CONNECTIONS_CUT: &str = "http_connections_cut_total";

/// Requests that the store could not carry out.
pub const NOT_CARRIED_OUT: &str = "http_requests_not_carried_out_total";

/// Tells the recorder what each of them means. Call it once, after the recorder is installed.
pub fn describe() {
    use metrics::{Unit, describe_counter, describe_histogram};
    describe_counter!(
        REQUESTS,
        "requests answered, by route, method and class of status"
    );
    describe_histogram!(
        REQUEST_DURATION,
        Unit::Seconds,
        "time from a request's headers to its answer, by route"
    );
    describe_counter!(
        UNAUTHORIZED,
        "requests without a token, or with one that nobody knows"
    );
    describe_counter!(
        NOT_CARRIED_OUT,
        "requests that the store could not carry out"
    );
    describe_counter!(
        CONNECTIONS_CUT,
        "connections closed because of their number"
    );
}
