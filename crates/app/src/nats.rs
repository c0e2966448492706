//! Events and commands through NATS JetStream.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt;
use punctual_adapters_nats::{NatsError, NatsEventBus, NatsParts, NatsSettings};
use punctual_ports::TimerStores;

use crate::bus::{BusSource, Connected, Owner};
use crate::clock::EngineClock;
use crate::stores::Stores;
use crate::{Builder, Error, ErrorKind};

impl Builder {
    /// Sends the events through NATS JetStream, at an address such as `nats://host:4222`. A handler,
    /// if there is one, gets them from there: also those that another engine has sent.
    ///
    /// A broker that does not answer is waited for, here and later: timers are accepted and stored
    /// meanwhile, and fire when it is back.
    pub fn nats(mut self, url: impl AsRef<str>) -> Self {
        self.bus = Some(Box::new(Broker(NatsSettings::new(url.as_ref()))));
        self
    }

    /// The same with all settings: credentials, certificates, names of streams.
    pub fn nats_with(mut self, settings: NatsSettings) -> Self {
        self.bus = Some(Box::new(Broker(Ok(settings))));
        self
    }
}

/// The settings, or what is wrong with the address, which `build` answers.
struct Broker(Result<NatsSettings, NatsError>);

#[async_trait]
impl BusSource for Broker {
    fn problems(&self, on_fake_clock: bool) -> Vec<String> {
        let settings = self.0.as_ref().map_err(Clone::clone);
        let checked = settings.and_then(NatsSettings::check);
        let wrong = checked.err().map(|error| error.to_string());
        let in_real_time = on_fake_clock.then(|| {
            "a broker lives in real time: drop the fake clock, or give a `bus` of your own"
                .to_owned()
        });
        wrong.into_iter().chain(in_real_time).collect()
    }

    fn is_broker(&self) -> bool {
        true
    }

    async fn connect(
        self: Box<Self>,
        stores: &Stores,
        consumers: Vec<(&'static str, Owner)>,
        clock: &dyn EngineClock,
    ) -> Result<Connected, Error> {
        let mut settings = self.0?;
        let TimerStores {
            dead_letters,
            positions,
            ..
        } = stores.timers().timer_stores();
        for (consumer, owner) in consumers {
            let id = clock.ids().next_id();
            let id = match owner {
                Owner::Timers => positions.owner(id).await?,
                Owner::Calls => stores.calls().timer_stores().positions.owner(id).await?,
            };
            if let Some(id) = id {
                settings.owners.insert(consumer.to_owned(), id.to_string());
            }
        }
        let parts = NatsParts {
            clock: clock.port(),
            dead_letters,
            positions,
        };
        let broker = NatsEventBus::connect(settings, parts).await?;
        let bus = Arc::new(broker.clone());
        let close = move || {
            let broker = broker.clone();
            async move { broker.close().await }.boxed()
        };
        Ok(Connected {
            bus,
            close: Box::new(close),
        })
    }
}

impl From<NatsError> for Error {
    fn from(error: NatsError) -> Self {
        let kind = match error {
            NatsError::Setting { .. } => ErrorKind::Config,
            NatsError::Unreachable { .. } => ErrorKind::Unavailable,
            _ => ErrorKind::Broker,
        };
        Self::caused(kind, error)
    }
}
