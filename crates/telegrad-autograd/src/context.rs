//! Contexts, as users see them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use candle_core::Tensor;
use rustc_hash::FxHashMap;
use telegrad_rpc::{Error, Result, World};
use telegrad_trace::Kind;
use telegrad_wire::ContextId;

use crate::backend::AutogradBackend;
use crate::candle::{Candle, Param};
use crate::drive::{self, Limit, Mode};
use crate::info::AutogradInfo;
use crate::layer::{node_of, part_of};
use crate::message::PassId;
use crate::node::{Membership, Node, Passing};
use crate::roots::Roots;
use telegrad_error::AutogradError;

/// What a world can do when it has autograd.
pub trait AutogradWorld {
    /// Opens a context for the time of `f`. Calls made within it record what crosses them, on whatever worker
    /// they are made in its course, and its gradients are kept apart from those of all others. When `f` returns,
    /// with a value or an error, every worker forgets it.
    ///
    /// One thread has one context at a time; other threads enter it with [`Context::enter`].
    ///
    /// # Errors
    /// Whatever `f` fails with; [`AutogradError::Nested`] inside of another context.
    fn context<R>(&self, f: impl FnOnce(&Context) -> Result<R>) -> Result<R>;

    /// What autograd has in hand on this worker.
    ///
    /// # Errors
    /// [`AutogradError::NotThere`] when the world was made without autograd.
    fn autograd_info(&self) -> Result<AutogradInfo>;
}

impl AutogradWorld for World {
    fn context<R>(&self, f: impl FnOnce(&Context) -> Result<R>) -> Result<R> {
        Context::open(self, f)
    }

    fn autograd_info(&self) -> Result<AutogradInfo> {
        Ok(part_of(self)?.info())
    }
}

/// A scope in which gradients across workers are taken.
pub struct Context<B: AutogradBackend = Candle> {
    world: World,
    id: ContextId,
    node: Arc<Node<B>>,
}

/// How a backward pass is to go.
#[derive(Clone, Debug, Default)]
pub struct Backward {
    /// What becomes of results that the loss does not depend on.
    pub mode: Mode,
    /// Keeps the graph, for another pass through it.
    pub retain_graph: bool,
    /// Time limit of the whole pass; the world's for calls when there is none. Zero: none at all.
    pub timeout: Option<Duration>,
}

impl<B: AutogradBackend> Context<B> {
    /// Opens a context for the time of `f`; see [`AutogradWorld::context`].
    ///
    /// # Errors
    /// As there.
    pub fn open<R>(world: &World, f: impl FnOnce(&Self) -> Result<R>) -> Result<R> {
        if let Some(outer) = world.current_context() {
            return Err(AutogradError::Nested(outer).into());
        }
        let node = node_of::<B>(world)?;
        let context = Self {
            id: node.open(world.rank()),
            world: world.clone(),
            node,
        };
        /// Ends it, also when `f` panics.
        struct End<'a, B: AutogradBackend>(&'a Context<B>);
        impl<B: AutogradBackend> Drop for End<'_, B> {
            fn drop(&mut self) {
                let Context { world, id, node } = self.0;
                let still = node.contexts.close(*id);
                drive::end(world, &**node, *id, Some(&still));
            }
        }
        let _end = End(&context);
        world.in_context(Some(context.id), || f(&context))
    }

    /// As [`Context::current`], with tensors of any library.
    ///
    /// # Errors
    /// As there.
    pub fn current_of() -> Result<Self> {
        let world = World::current()?;
        let id = world.current_context().ok_or(AutogradError::NoContext)?;
        let node = node_of(&world)?;
        Ok(Self { world, id, node })
    }

    /// Its name in the world.
    pub fn id(&self) -> ContextId {
        self.id
    }

    /// The world that it is a context of.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Runs `f` within the context, on another thread than the one that opened it.
    pub fn enter<R>(&self, f: impl FnOnce() -> R) -> R {
        self.world.in_context(Some(self.id), f)
    }

    /// Computes the gradients of everything that the roots depend on, on any worker, and adds them to the context's.
    ///
    /// A root is a scalar of this worker: `backward(&loss)` has one, `backward(&[first, second])` several. See [`Roots`].
    ///
    /// # Errors
    /// Whatever fails on any worker, and the loss of any that takes part. The context has failed then, everywhere.
    pub fn backward(&self, roots: &(impl Roots<B::Tensor> + ?Sized)) -> Result<()> {
        self.backward_with(roots, &Backward::default())
    }

    /// As [`backward`](Self::backward), with options.
    ///
    /// # Errors
    /// As there; [`AutogradError::TimedOut`] at the time limit.
    pub fn backward_with(&self, roots: &(impl Roots<B::Tensor> + ?Sized), options: &Backward) -> Result<()> {
        let (world, node) = (&self.world, &*self.node);
        let limit = Limit::new(world, options.timeout);
        let pass = node.pass(world.rank(), options.retain_graph, options.mode);
        let _over = Over(node, pass.id);
        let recorded = telegrad_trace::scope(Kind::Autograd, || "backward".into());
        // The calls of a pass belong to no context.
        let result = world.in_context(None, || {
            let first = node.start(self.id, pass, roots.as_roots().to_vec())?;
            drive::run(world, node, self.id, (pass, options.mode), first, &limit)
        });
        result.map_err(|error| {
            let error = timed_out(error, limit.duration());
            recorded.fail(|| error.to_string());
            if !is_refusal(&error) {
                drive::fail(world, node, self.id, &error.to_string());
            }
            error
        })
    }

    /// The gradients that passes have found for this worker's own tensors so far.
    ///
    /// # Errors
    /// When a pass has failed: part of a gradient is none. When the context is not known here.
    #[doc(alias = "get_gradients")]
    pub fn gradients(&self) -> Result<Gradients<B>> {
        let gradients = self
            .node
            .with_graph(self.id, |graph| Ok(graph.gradients.clone()))?;
        Ok(Gradients(gradients))
    }
}

impl<B: AutogradBackend> fmt::Debug for Context<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context({} on `{}`)", self.id, self.world.name())
    }
}

/// Takes a pass off the books, also when an operation panics.
struct Over<'a, B: AutogradBackend>(&'a Node<B>, PassId);

impl<B: AutogradBackend> Drop for Over<'_, B> {
    fn drop(&mut self) {
        self.0.pass_over(self.1);
    }
}

/// A call that ran out of time, as what it was part of.
fn timed_out(error: Error, of_pass: Duration) -> Error {
    match error {
        // What another worker had was less.
        Error::Timeout { worker, .. } => AutogradError::TimedOut {
            limit: of_pass,
            why: format!("worker `{worker}` had not answered"),
        }
        .into(),
        error => error,
    }
}

/// Whether a pass was not even begun: then nothing has been spoilt.
fn is_refusal(error: &Error) -> bool {
    matches!(
        error.autograd(),
        Some(
            AutogradError::NoRoots
                | AutogradError::Root { .. }
                | AutogradError::Ended(_)
                | AutogradError::Failed { .. }
        )
    )
}

impl Context<Candle> {
    /// Inside a remote function that was called in a context: that context.
    ///
    /// # Errors
    /// [`AutogradError::NoContext`] elsewhere.
    pub fn current() -> Result<Self> {
        Self::current_of()
    }

    /// Replaces the value of a parameter of this worker; the new version.
    ///
    /// # Errors
    /// As [`Param::set`] and [`check_update`](Self::check_update).
    pub fn update(&self, param: &Param, value: &Tensor) -> Result<u64> {
        self.check_update(param)?;
        param.set(value)
    }

    /// Whether a parameter of this worker may be replaced now.
    ///
    /// # Errors
    /// [`AutogradError::InUse`] when it is a variable that is changed in place, and another context that is open still
    /// needs its present value.
    pub fn check_update(&self, param: &Param) -> Result<()> {
        if let Some(leaf) = param.in_place()
            && let Some(context) = self.node.who_needs(leaf, self.id)
        {
            let parameter = param.name().to_owned();
            return Err(AutogradError::InUse { parameter, context }.into());
        }
        Ok(())
    }
}

/// The gradients of one worker's tensors in one context.
pub struct Gradients<B: AutogradBackend = Candle>(FxHashMap<B::LeafId, B::Tensor>);

impl<B: AutogradBackend> Gradients<B> {
    /// The gradient of a leaf.
    pub fn of_leaf(&self, leaf: B::LeafId) -> Option<&B::Tensor> {
        self.0.get(&leaf)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Gradients<Candle> {
    /// The gradient of a parameter, over all versions of it that the context's passes have read; nothing when they
    /// have not used it.
    ///
    /// # Errors
    /// When candle cannot add gradients.
    pub fn get(&self, param: &Param) -> Result<Option<Tensor>> {
        param.sum_over_leaves(|leaf| self.0.get(&leaf))
    }

    /// The gradient of a variable that is no parameter of ours.
    pub fn of(&self, variable: &Tensor) -> Option<&Tensor> {
        self.0.get(&variable.id())
    }
}

impl<B: AutogradBackend> fmt::Debug for Gradients<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}
