//! The HTTP API beside the engine: bound before anything is opened, drained before it is closed.

use std::future::Future;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use metrics_exporter_prometheus::PrometheusHandle;
use punctual::Punctual;
use punctual_adapters_system::{SystemClock, UuidIds};
use punctual_api::{
    ApiParts, ApiSettings as Limits, CallsApi, Readiness, ReadinessCheck, TimersApi, Tokens,
};
use punctual_domain::{ServiceCallId, TenantId, TimerKey};
use punctual_ports::{ClockPort, TimerPersistencePort};
use uuid::Uuid;

use crate::failure::Failure;
use crate::settings::ApiSettings;

/// A worker that has not looked for so long is in trouble.
const TICKS_WITHIN: Duration = Duration::from_secs(30);

/// Requests take milliseconds; the attempts of calls need the rest of the time that a stop has.
const DRAIN: Duration = Duration::from_secs(2);

/// An address that is ours, and who may speak to us there.
pub(super) struct Bound {
    listener: TcpListener,
    tokens: Tokens,
}

/// Takes the address, unless it may not be taken.
pub(super) fn bind(settings: &ApiSettings) -> Result<Bound, Failure> {
    let tokens = match &settings.tokens_file {
        None => Tokens::none(),
        Some(path) => {
            let shown = path.display();
            let text = std::fs::read_to_string(path).map_err(|error| {
                Failure::refused(format!("API_TOKENS_FILE {shown} cannot be read: {error}"))
            })?;
            Tokens::parse(&text)
                .map_err(|error| Failure::refused(format!("API_TOKENS_FILE {shown}: {error}")))?
        }
    };
    let address = settings.listen;
    punctual_api::check_bind(address, &tokens).map_err(Failure::refused)?;
    let listener = TcpListener::bind(address).map_err(|error| {
        Failure::refused(format!(
            "the API cannot listen on {address}: {error}; name another address with --listen or API_LISTEN"
        ))
    })?;
    Ok(Bound { listener, tokens })
}

impl Bound {
    /// Where it listens, with the port that was given if any was asked for.
    pub(super) fn address(&self) -> Result<std::net::SocketAddr, Failure> {
        let address = self.listener.local_addr();
        address.map_err(|error| Failure::refused(format!("the API's address is unknown: {error}")))
    }

    /// Answers until `shutdown` is ready, and then finishes what was asked before.
    pub(super) async fn serve(
        self,
        punctual: Punctual,
        metrics: PrometheusHandle,
        clock: SystemClock,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), Failure> {
        let limits = Limits {
            drain: DRAIN,
            ..Limits::default()
        };
        let calls = punctual.calls().map(|calls| CallsApi {
            submit: calls.submit,
            read: calls.read,
        });
        // Timers of their own are scheduled only where they need not belong to a call.
        let timers = punctual.has_timers_of_their_own().then(|| TimersApi {
            schedule: punctual.timer_ports().1,
            timers: punctual.timer_ports().0,
        });
        let parts = ApiParts {
            calls,
            timers,
            tokens: self.tokens,
            readiness: readiness(punctual, clock.clone()),
            metrics: Arc::new(move || metrics.render()),
            ids: Arc::new(UuidIds),
            clock: Arc::new(clock.clone()),
            settings: limits,
        };
        let router = punctual_api::router(parts);
        let failed = |error| Failure::failed(format!("the API cannot listen: {error}"));
        self.listener.set_nonblocking(true).map_err(failed)?;
        let listener = tokio::net::TcpListener::from_std(self.listener).map_err(failed)?;
        let served = punctual_api::serve(listener, router, limits, Arc::new(clock), shutdown).await;
        if served.cut_off > 0 {
            tracing::warn!(
                connections = served.cut_off,
                "connections were still busy and were cut off"
            );
        }
        Ok(())
    }
}

/// Whether the database answers, the broker is there, and the worker looks for what is due.
fn readiness(punctual: Punctual, clock: SystemClock) -> Readiness {
    Arc::new(move || {
        let (punctual, clock) = (punctual.clone(), clock.clone());
        async move {
            let store: Arc<dyn TimerPersistencePort> = punctual.timer_ports().0;
            let nobody = TimerKey::new(TenantId::default(), ServiceCallId::from_uuid(Uuid::nil()));
            let database = store
                .find(nobody)
                .await
                .err()
                .map(|error| error.to_string());
            let worker = match punctual.last_look() {
                Some(at) if clock.now().since(at) <= TICKS_WITHIN => None,
                Some(at) => Some(format!("it looked for due timers last at {at}")),
                None => Some("it has not looked for due timers yet".to_owned()),
            };
            vec![
                ReadinessCheck {
                    name: "database",
                    problem: database,
                },
                ReadinessCheck {
                    name: "broker",
                    problem: punctual.readiness().err(),
                },
                ReadinessCheck {
                    name: "worker",
                    problem: worker,
                },
            ]
        }
        .boxed()
    })
}
