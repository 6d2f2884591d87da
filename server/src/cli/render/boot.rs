//! What a node boots next.

use crate::cli::table::pairs;
use crate::cli::text::Context;
use crate::cli::views::Boot;

/// The order and the restart, as far as there are any.
#[must_use]
pub fn boot(boot: &Boot, context: &Context) -> String {
    let mut rows = Vec::new();
    match &boot.order {
        None => rows.push(("boots", "what its state says".to_owned())),
        Some(order) => {
            let (what, lasts) = match order.kind.as_str() {
                "rescue" => ("the rescue system", "once"),
                "commission" => ("the deployer, for inventory and burn-in", "once"),
                "hold" => ("nothing", "until the order is lifted"),
                other => (other, "once"),
            };
            rows.push(("boots", format!("{what}, {lasts}")));
            rows.push(("reason", order.reason.clone()));
            let since = context.age(order.ordered_at);
            rows.push(("ordered", format!("by {}, {since}", order.ordered_by)));
        }
    }
    if let Some((address, host_key)) = boot.ssh() {
        rows.push(("SSH", format!("root@{address}")));
        rows.push(("SSH host key", host_key.to_owned()));
    }
    if let Some(restart) = &boot.restart {
        let since = context.age(restart.ordered_at);
        rows.push((
            "restart",
            format!("into the network, by {}, {since}", restart.ordered_by),
        ));
        let answer = restart.answer.clone();
        rows.push((
            "its agent says",
            answer.unwrap_or_else(|| "nothing yet: it asks every 30 s".to_owned()),
        ));
    }
    pairs(context, rows)
}
