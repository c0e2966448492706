//! The names of the metrics about requests. No label has an id or a tenant.

use metrics::{Unit, describe_counter, describe_histogram};

/// The time that responses took, by route.
pub const REQUEST_DURATION: &str = "http_request_duration_seconds";

/// Counters: each with its name and its description.
macro_rules! counters {
    ($($constant:ident $name:literal $description:literal;)*) => {
        $(#[doc = $description]
        pub const $constant: &str = $name;)*

        /// Describes the metrics to the recorder. Call it once, after the recorder is installed.
        pub fn describe() {
            let took = "time from a request's headers to its response, by route";
            describe_histogram!(REQUEST_DURATION, Unit::Seconds, took);
            $(describe_counter!($name, $description);)*
        }
    };
}

counters! {
    REQUESTS "http_requests_total" "requests answered, by route, method and class of status";
    UNAUTHORIZED "http_unauthorized_total" "requests without a token, or with an unknown one";
    CONNECTIONS_CUT "http_connections_cut_total" "connections closed because of their number";
    NOT_CARRIED_OUT "http_requests_not_carried_out_total" "requests that the store could not carry out";
}
