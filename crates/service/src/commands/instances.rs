//! `instances`: lists the processes that share a database.

use std::fmt::Write as _;

use punctual_api::InstancesView;
use punctual_ports::{ClockPort, Instance};

use super::Session;
use super::output::Answers;
use crate::cli::InstancesArgs;
use crate::display::cut_to;
use crate::failure::Failure;
use crate::settings::Environment;

/// Width of the name in the table.
const NAME_WIDTH: usize = 40;

/// Lists the instances that live.
pub(crate) async fn run(args: InstancesArgs, environment: &Environment<'_>) -> Result<(), Failure> {
    let session = Session::open(&args.answer.database, environment).await?;
    let listed = session.backend.instances(session.clock.now()).await;
    let database = session.database.to_string();
    session.close().await;
    let Some(instances) = listed? else {
        return Err(Failure::refused(format!(
            "{database} is a file, which one process serves: name a PostgreSQL database with DATABASE_URL"
        )));
    };
    let table = table(&instances);
    Answers::open()?.show(args.answer.output, &InstancesView::from(instances), || {
        table
    })
}

fn table(instances: &[Instance]) -> String {
    let mut table = format!(
        "{:NAME_WIDTH$}  {:10}  {:24}  {:>9}  {:>7}  {:>8}  {:>8}  MODULES\n",
        "NAME", "VERSION", "STARTED", "CLOCK ms", "TIMERS", "ATTEMPTS", "MESSAGES"
    );
    for instance in instances {
        let claimed = instance.claimed.unwrap_or_default();
        // Writing to a string does not fail.
        let _ = writeln!(
            table,
            "{:NAME_WIDTH$}  {:10}  {:24}  {:>+9}  {:>7}  {:>8}  {:>8}  {}",
            cut_to(&instance.name, NAME_WIDTH),
            instance.version,
            instance.started_at.to_string(),
            instance.clock_offset_millis,
            claimed.timers,
            claimed.attempts,
            claimed.messages,
            instance.modules,
        );
    }
    table
}
