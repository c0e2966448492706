//! An engine without service calls, where the feature `calls` is off: values of these types do not exist.

use std::sync::Arc;

use punctual_domain::Topic;
use punctual_domain::messages::Listeners;
use punctual_ports::{CallStores, MessageHandler, TimerPersistencePort};
use punctual_workflows::TimerPorts;
use tokio::sync::watch;

use crate::Error;
use crate::bus::Owner;
use crate::running::CallsRun;

pub(crate) enum CallOptions {}
pub(crate) enum ServiceCalls {}
pub(crate) enum CallsPlan {}

impl CallsPlan {
    pub(crate) fn handlers(&self) -> Vec<(Topic, &'static str, usize, Arc<dyn MessageHandler>)> {
        match *self {}
    }
}

/// Every engine does.
pub(crate) const fn fires(_options: Option<&CallOptions>) -> bool {
    true
}

pub(crate) const fn problem(_options: Option<&CallOptions>, _has_bus: bool) -> Option<String> {
    None
}

pub(crate) const fn consumers(_options: Option<&CallOptions>) -> Vec<(&'static str, Owner)> {
    Vec::new()
}

pub(crate) fn deletions(
    _are_heard: bool,
    _timers: &Arc<dyn TimerPersistencePort>,
) -> Option<Arc<dyn MessageHandler>> {
    None
}

pub(crate) fn assemble(
    options: &CallOptions,
    _several_instances: bool,
    _stores: CallStores,
    _timers: &TimerPorts,
    _rejects_standalone: bool,
    _listeners: Listeners,
) -> Result<(ServiceCalls, CallsPlan), Error> {
    match *options {}
}

pub(crate) fn run(
    _plan: Option<CallsPlan>,
    _stop: watch::Receiver<bool>,
    _drained: watch::Receiver<bool>,
) -> CallsRun {
    CallsRun::none()
}
