// SPDX-License-Identifier: Apache-2.0
//! Aggregates of a running shaper brought to those of a network, and back again if what depends on them fails.
//!
//! Invariant: a parent is put before what stands below it and removed after it, and the forest is sound after every
//! step, forwards and back. Putting top-down in the new tree sees to that where nothing gets deeper: whatever is above a
//! node when it is put is in its place already. What hangs below it may not be yet; where that would make too many levels
//! for a moment, all that moves becomes a root first, so that below a node there is never more than in the new tree.

use std::collections::HashMap;

use anyhow::Context;
use model::Forest;
use model::import::network::{Network, Node};
use serde_json::{Value, json};

use super::client::{Client, encode};

const PATH: &str = "/v1/parents";

/// An aggregate record.
#[expect(clippy::struct_field_names, reason = "the interface's names")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parent {
    pub(super) id: String,
    pub(super) parent: Option<String>,
    pub(super) down_bps: u64,
    pub(super) up_bps: u64,
}

impl Parent {
    fn read(record: &Value) -> Option<Self> {
        let text = |name: &str| record.get(name).and_then(Value::as_str).map(str::to_owned);
        let rate = |name: &str| record.get(name).and_then(Value::as_u64);
        let (down_bps, up_bps) = (rate("down_bps")?, rate("up_bps")?);
        Some(Self { id: text("id")?, parent: text("parent"), down_bps, up_bps })
    }

    pub(super) fn record(&self) -> Value {
        let Self { id, parent, down_bps, up_bps } = self;
        json!({"id": id, "parent": parent, "down_bps": down_bps, "up_bps": up_bps})
    }

    fn path(&self) -> String {
        format!("{PATH}/{}", encode(&self.id))
    }
}

impl From<&Node> for Parent {
    fn from(node: &Node) -> Self {
        let Node { id, parent, down_bps, up_bps, .. } = node.clone();
        Self { id, parent, down_bps, up_bps }
    }
}

/// All that the shaper has; `None` if it knows no aggregates.
pub(super) fn of_shaper(client: &Client) -> anyhow::Result<Option<Vec<Parent>>> {
    let mut all = Vec::new();
    let known = super::pages(client, PATH, |items| {
        for item in items {
            all.push(Parent::read(item).with_context(|| format!("{item} is no aggregate"))?);
        }
        Ok(())
    })?;
    Ok(known.then_some(all))
}

/// What has to change.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// New ones, top-down.
    pub(super) create: Vec<Parent>,
    /// Old and new, top-down.
    pub(super) update: Vec<(Parent, Parent)>,
    /// Those that go, bottom-up.
    pub(super) delete: Vec<Parent>,
    pub(super) unchanged: usize,
    /// What is put, in this order.
    steps: Vec<Step>,
}

/// A put: what was there, if anything, and what is to be.
type Step = (Option<Parent>, Parent);

impl Plan {
    /// From what there is to what a network says; others go only if it replaces them.
    pub(super) fn new(have: &[Parent], network: &Network, replace: bool) -> Self {
        let mut plan = Self::default();
        let depths = depths(have);
        let mut left: HashMap<_, _> =
            have.iter().cloned().map(|parent| (parent.id.clone(), parent)).collect();
        for new in network.nodes.iter().map(Parent::from) {
            let old = left.remove(&new.id);
            match &old {
                None => plan.create.push(new.clone()),
                Some(old) if *old == new => {
                    plan.unchanged += 1;
                    continue;
                }
                Some(old) => plan.update.push((old.clone(), new.clone())),
            }
            plan.steps.push((old, new));
        }
        if replace {
            plan.delete = left.into_values().collect();
            let depth = |parent: &Parent| depths.get(&parent.id).copied().unwrap_or(0);
            plan.delete.sort_by(|a, b| depth(b).cmp(&depth(a)).then_with(|| a.id.cmp(&b.id)));
        }
        if !sound(have, &plan.steps) {
            let apart = plan.apart();
            // where that is not sound either, the shaper says why
            if sound(have, &apart) {
                plan.steps = apart;
            }
        }
        plan
    }

    /// The steps with all that moves or goes made roots before any other.
    fn apart(&self) -> Vec<Step> {
        let alone = |old: &Parent| Parent { parent: None, ..old.clone() };
        let moves = self.update.iter().filter(|(old, new)| old.parent != new.parent).map(|(old, _)| old);
        let leaves = moves.chain(&self.delete).filter(|old| old.parent.is_some());
        let mut steps: Vec<Step> = leaves.map(|old| (Some(old.clone()), alone(old))).collect();
        let roots: HashMap<_, _> = steps.iter().map(|(_, root)| (root.id.clone(), root.clone())).collect();
        steps.extend(self.steps.iter().map(|(old, new)| {
            let now = old.as_ref().map(|old| roots.get(&old.id).unwrap_or(old).clone());
            (now, new.clone())
        }));
        steps
    }

    pub(super) fn is_empty(&self) -> bool {
        self.create.is_empty() && self.update.is_empty() && self.delete.is_empty()
    }

    /// Creates and updates. What was done is undone if one is refused.
    pub(super) fn put<'p>(&'p self, client: &'p Client) -> anyhow::Result<Done<'p>> {
        let mut done = Done { client, steps: Vec::new() };
        for (old, new) in &self.steps {
            if let Err(error) = client.put(&new.path(), &new.record()) {
                let error = error.context(format!("parent {}", new.id));
                return Err(match done.undo() {
                    Ok(()) => error,
                    Err(left) => error.context(left),
                });
            }
            done.steps.push((old.as_ref(), new));
        }
        Ok(done)
    }

    /// Removes those that go.
    pub(super) fn remove(&self, client: &Client) -> anyhow::Result<()> {
        for parent in &self.delete {
            let removed = client.delete(&parent.path());
            removed
                .with_context(|| format!("subscribers were loaded, but the parent {} stays", parent.id))?;
        }
        Ok(())
    }
}

/// What was put so far.
pub(super) struct Done<'p> {
    client: &'p Client,
    steps: Vec<(Option<&'p Parent>, &'p Parent)>,
}

impl Done<'_> {
    /// Makes it as it was.
    pub(super) fn undo(self) -> anyhow::Result<()> {
        for (old, new) in self.steps.into_iter().rev() {
            let undone = match old {
                Some(old) => self.client.put(&old.path(), &old.record()).map(drop),
                None => self.client.delete(&new.path()),
            };
            undone.with_context(|| format!("the parent {} could not be made as it was", new.id))?;
        }
        Ok(())
    }
}

/// Whether each step leaves a forest that a shaper takes.
fn sound(have: &[Parent], steps: &[Step]) -> bool {
    let mut forest = Forest::default();
    // all are there before any is below another
    let alone = have.iter().map(|parent| (&parent.id, None));
    let placed = have.iter().chain(steps.iter().map(|(_, new)| new));
    let placed = placed.map(|parent| (&parent.id, parent.parent.as_deref()));
    alone.chain(placed).all(|(id, above)| forest.place(id, above).is_ok())
}

/// How many stand above each; a circle, which no shaper has, ends where it closes.
fn depths(all: &[Parent]) -> HashMap<String, usize> {
    let by_id: HashMap<_, _> = all.iter().map(|parent| (parent.id.as_str(), parent)).collect();
    let above = |parent: &&Parent| by_id.get(parent.parent.as_deref()?).copied();
    let depth = |parent| std::iter::successors(Some(parent), above).take(all.len()).count();
    all.iter().map(|parent| (parent.id.clone(), depth(parent))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parent(id: &str, above: Option<&str>) -> Parent {
        Parent { id: id.to_owned(), parent: above.map(str::to_owned), down_bps: 64_000, up_bps: 64_000 }
    }

    /// A node and the names below it, as `network.json` has it.
    fn network(all: &[Parent]) -> Network {
        fn below(all: &[Parent], above: Option<&str>) -> Value {
            let children = all.iter().filter(|parent| parent.parent.as_deref() == above);
            let node = |parent: &Parent| {
                let rest = below(all, Some(&parent.id));
                json!({"downloadBandwidthMbps": 1, "uploadBandwidthMbps": 1, "children": rest})
            };
            children.map(|parent| (parent.id.clone(), node(parent))).collect::<serde_json::Map<_, _>>().into()
        }
        model::import::network::read("n", below(all, None).to_string().as_bytes()).expect("a network")
    }

    /// Plays a plan on a forest, and back; the places at its end.
    fn play(have: &[Parent], plan: &Plan) -> HashMap<String, Option<String>> {
        assert!(sound(have, &plan.steps), "{have:?} {:?}", plan.steps);
        let mut forest = Forest::default();
        for one in have {
            forest.place(&one.id, None).unwrap();
        }
        for one in have.iter().chain(plan.steps.iter().map(|(_, new)| new)) {
            forest.place(&one.id, one.parent.as_deref()).unwrap();
        }
        for (old, new) in plan.steps.iter().rev() {
            match old {
                Some(old) => forest.place(&old.id, old.parent.as_deref()).unwrap(),
                None => forest.remove(&new.id).unwrap(),
            }
        }
        assert!(have.iter().all(|one| forest.above(&one.id) == one.parent.as_deref()), "not as it was");
        let mut places: HashMap<_, _> = have.iter().map(|one| (one.id.clone(), one.parent.clone())).collect();
        for (old, new) in &plan.steps {
            assert_eq!(places.get(&new.id), old.as_ref().map(|old| &old.parent), "what an undo puts back");
            places.insert(new.id.clone(), new.parent.clone());
        }
        places
    }

    #[test]
    fn eight_levels_that_get_another_head_are_taken_apart_first() {
        let names: Vec<String> = (1..=8).map(|level| format!("l{level}")).collect();
        let chain = |names: &[String]| -> Vec<Parent> {
            let above = std::iter::once(None).chain(names.iter().map(|name| Some(name.as_str())));
            names.iter().zip(above).map(|(name, above)| parent(name, above)).collect()
        };
        let have = chain(&names);
        // l1 leaves the head of the line to a new one, and stands beside l2 from then on
        let mut wanted = chain(&names[1..]);
        wanted[0].parent = Some("head".to_owned());
        wanted.extend([parent("head", None), parent("l1", Some("head"))]);
        let plan = Plan::new(&have, &network(&wanted), true);
        let places = play(&have, &plan);
        assert_eq!(places["l1"].as_deref(), Some("head"));
        assert_eq!(places["l2"].as_deref(), Some("head"));
        assert!(plan.steps.len() > 3, "{:?}", plan.steps);
    }

    /// Knuth's MMIX generator.
    struct Dice(u64);

    impl Dice {
        fn below(&mut self, most: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(self.0 >> 33).unwrap() % most
        }

        /// Names in any order below each other, deep more often than wide.
        fn forest(&mut self, letters: &str) -> Vec<Parent> {
            let mut order: Vec<String> = letters.chars().map(String::from).collect();
            for at in 0..order.len() {
                let with = self.below(at + 1);
                order.swap(at, with);
            }
            let (mut all, mut levels) = (Vec::new(), Vec::<usize>::new());
            for (at, name) in order.iter().enumerate() {
                let above = (at > 0 && self.below(8) > 0).then(|| at - 1 - self.below(at.min(2)));
                let above = above.filter(|&above| levels[above] < 8);
                levels.push(above.map_or(1, |above| levels[above] + 1));
                all.push(parent(name, above.map(|above| order[above].as_str())));
            }
            all
        }
    }

    #[test]
    fn every_forest_becomes_every_other_by_sound_steps() {
        let mut dice = Dice(7);
        for _ in 0..500 {
            let (have, wanted) = (dice.forest("abcdefghijklmn"), dice.forest("hijklmnopqrstu"));
            let plan = Plan::new(&have, &network(&wanted), true);
            let places = play(&have, &plan);
            assert!(wanted.iter().all(|one| places[&one.id] == one.parent), "{have:?} {wanted:?}");
        }
    }
}
