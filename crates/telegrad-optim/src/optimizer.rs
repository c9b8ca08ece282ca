//! The optimiser of parameters on this worker.

use std::fmt;

use candle_core::backprop::GradStore;
use candle_core::{Tensor, Var};
use telegrad_autograd::Param;
use telegrad_rpc::Result;
use telegrad_trace::Kind;

use crate::param_element::{ParamElement, is_supported, with_elements, with_param_element};
use crate::{Algorithm, OptimError, State, Step};

/// Parameters with the same options.
#[derive(Debug, Clone)]
pub struct ParamGroup<A> {
    /// The parameters. A group may be empty, as long as another is not.
    pub params: Vec<Param>,
    /// The algorithm's options.
    pub options: A,
}

/// An optimiser of parameters on this worker, with the state of each.
///
/// A parameter may have several optimisers, each with its own state. Concurrent steps are serialised, and none is lost.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use telegrad_autograd::Param;
/// use telegrad_optim::{Adam, Optimizer, ParamGroup};
///
/// let weight = Param::new(&Tensor::new(&[1f32, 2.0], &Device::Cpu)?)?;
/// let bias = Param::new(&Tensor::new(0f32, &Device::Cpu)?)?;
/// let decayed = Adam { weight_decay: 0.1, ..Adam::default() };
/// let mut optimizer = Optimizer::with_groups([
///     ParamGroup { params: vec![weight], options: decayed },
///     ParamGroup { params: vec![bias], options: Adam::default() },
/// ])?;
/// optimizer.set_lr(1, 0.5)?;
/// let loss = optimizer.params().next().unwrap().tensor().sqr()?.sum_all()?;
/// optimizer.step(&loss.backward()?)?;
/// # Ok::<(), telegrad_rpc::Error>(())
/// ```
pub struct Optimizer<A> {
    pub(crate) groups: Vec<ParamGroup<A>>,
    /// The state of each parameter of each group; `None` before its first gradient.
    pub(crate) states: Vec<Vec<Option<State>>>,
}

impl<A: Algorithm> Optimizer<A> {
    /// Makes an optimiser with one group.
    ///
    /// # Errors
    /// As [`with_groups`](Self::with_groups).
    pub fn new(params: impl IntoIterator<Item = Param>, options: A) -> Result<Self> {
        let params = params.into_iter().collect();
        Self::with_groups([ParamGroup { params, options }])
    }

    /// Makes an optimiser with several groups, numbered from 0.
    ///
    /// # Errors
    /// When there is no parameter, one is given twice or has an unsupported element type, or options are invalid.
    pub fn with_groups(groups: impl IntoIterator<Item = ParamGroup<A>>) -> Result<Self> {
        let mut optimizer = Self {
            groups: Vec::new(),
            states: Vec::new(),
        };
        for group in groups {
            optimizer.add_group(group)?;
        }
        if optimizer.params().next().is_none() {
            return Err(OptimError::NoParameters.into());
        }
        Ok(optimizer)
    }

    /// Adds a group; returns its number.
    ///
    /// # Errors
    /// As [`with_groups`](Self::with_groups). The optimiser is then unchanged.
    pub fn add_group(&mut self, group: ParamGroup<A>) -> Result<usize> {
        group.options.check()?;
        let number = self.groups.len();
        for (index, param) in group.params.iter().enumerate() {
            let parameter = || label(param, number, index);
            let mut others = self.params().chain(&group.params[..index]);
            if others.any(|other| other.is(param)) {
                return Err(OptimError::Duplicate {
                    parameter: parameter(),
                }
                .into());
            }
            let dtype = param.dtype();
            if !is_supported(dtype) {
                return Err(OptimError::ParameterDType {
                    parameter: parameter(),
                    dtype,
                }
                .into());
            }
        }
        self.states.push(vec![None; group.params.len()]);
        self.groups.push(group);
        Ok(number)
    }

    /// The groups.
    pub fn groups(&self) -> &[ParamGroup<A>] {
        &self.groups
    }

    /// The parameters of all groups.
    pub fn params(&self) -> impl Iterator<Item = &Param> {
        self.groups.iter().flat_map(|group| &group.params)
    }

    /// The learning rate of a group.
    ///
    /// # Errors
    /// [`OptimError::NoGroup`].
    pub fn lr(&self, group: usize) -> Result<f64> {
        Ok(self.group(group)?.options.lr())
    }

    /// Replaces the learning rate of a group.
    ///
    /// # Errors
    /// When there is no such group, or the learning rate is invalid. The old one then remains.
    pub fn set_lr(&mut self, group: usize, lr: f64) -> Result<()> {
        let mut options = self.group(group)?.options.clone();
        options.set_lr(lr);
        self.set_options(group, options)
    }

    /// Replaces the options of a group. The state of its parameters remains, so the new options must have the same
    /// [slots](Algorithm::slots).
    ///
    /// # Errors
    /// When there is no such group, or the options are invalid or have other slots. The old ones then remain.
    pub fn set_options(&mut self, group: usize, options: A) -> Result<()> {
        options.check()?;
        if self.group(group)?.options.slots() != options.slots() {
            let why = "the new options need another state than the old ones: make a new optimiser";
            return Err(OptimError::Options { of: A::NAME, why }.into());
        }
        self.groups[group].options = options;
        Ok(())
    }

    /// Makes a step by the gradients of candle's `backward`: `optimizer.step(&loss.backward()?)`.
    ///
    /// A parameter without a gradient is unchanged, and its step does not count.
    ///
    /// # Errors
    /// [`OptimError::NoGradients`] when no parameter has a gradient. When a gradient has another shape or element type
    /// than its parameter. All parameters are then unchanged.
    pub fn step(&mut self, gradients: &GradStore) -> Result<()> {
        let found = self.params().map(|param| param.gradient_in(gradients));
        let found = found.collect::<Result<Vec<_>>>()?;
        if found.iter().all(Option::is_none) {
            let count = found.len();
            return Err(OptimError::NoGradients { count }.into());
        }
        let mut in_order = found.into_iter();
        self.step_with(|_| Ok(in_order.next().flatten()))
    }

    /// Makes a [`step`](Self::step) by the gradients that a function returns.
    ///
    /// # Errors
    /// The error of `gradient_of`; when a gradient has another shape or element type than its parameter. All parameters
    /// are then unchanged.
    pub fn step_with(&mut self, gradient_of: impl FnMut(&Param) -> Result<Option<Tensor>>) -> Result<()> {
        self.step_scaled(1.0, gradient_of)
    }

    /// Makes a [`step_with`](Self::step_with) whose gradients are multiplied by `scale` first, for instance to clip them
    /// (see [`clip_factor`](crate::clip_factor)).
    ///
    /// # Errors
    /// As `step_with`, and when `scale` is not finite.
    pub fn step_scaled(
        &mut self,
        scale: f64,
        mut gradient_of: impl FnMut(&Param) -> Result<Option<Tensor>>,
    ) -> Result<()> {
        let scope = telegrad_trace::scope(Kind::Optimizer, || "Optimizer::step".into());
        let made = self.make_step(scale, &mut gradient_of);
        if let Err(error) = &made {
            scope.fail(|| error.to_string());
        }
        made
    }

    fn make_step(
        &mut self,
        scale: f64,
        gradient_of: &mut dyn FnMut(&Param) -> Result<Option<Tensor>>,
    ) -> Result<()> {
        if !scale.is_finite() {
            return Err(OptimError::Scale(scale).into());
        }
        // Validate all gradients first, so that the step is made for all parameters or none.
        let mut gradients = Vec::new();
        for (number, group) in self.groups.iter().enumerate() {
            for (index, param) in group.params.iter().enumerate() {
                let gradient = gradient_of(param)?;
                if let Some(gradient) = &gradient {
                    check_gradient(param, gradient, || label(param, number, index))?;
                }
                gradients.push(gradient);
            }
        }
        let mut gradients = gradients.into_iter();
        for (group, states) in self.groups.iter().zip(&mut self.states) {
            for ((param, state), gradient) in group.params.iter().zip(states).zip(&mut gradients) {
                let Some(gradient) = gradient else { continue };
                // `add_group` has checked the element type.
                with_param_element!(param.dtype(), T => update::<T, A>(&group.options, param, &gradient, state, scale)?);
            }
        }
        Ok(())
    }

    /// The state of a parameter; `None` before its first step, and for a parameter of no group.
    pub fn state(&self, param: &Param) -> Option<&State> {
        let all = self.states.iter().flatten();
        let (_, state) = self.params().zip(all).find(|(known, _)| known.is(param))?;
        state.as_ref()
    }

    fn group(&self, group: usize) -> Result<&ParamGroup<A>, OptimError> {
        let groups = self.groups.len();
        self.groups
            .get(group)
            .ok_or(OptimError::NoGroup { group, groups })
    }
}

impl<A: fmt::Debug> fmt::Debug for Optimizer<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Optimizer")
            .field("groups", &self.groups)
            .finish_non_exhaustive()
    }
}

/// Names a parameter in errors.
pub(crate) fn label(param: &Param, group: usize, index: usize) -> String {
    match param.name() {
        "" => format!("parameter {index} of group {group}"),
        name => format!("parameter `{name}`"),
    }
}

fn check_gradient(
    param: &Param,
    gradient: &Tensor,
    parameter: impl Fn() -> String,
) -> Result<(), OptimError> {
    let (expected, found) = (param.shape(), gradient.shape());
    if expected != *found {
        let found = found.clone();
        return Err(OptimError::GradientShape {
            parameter: parameter(),
            expected,
            found,
        });
    }
    let (expected, found) = (param.dtype(), gradient.dtype());
    if expected != found {
        return Err(OptimError::GradientDType {
            parameter: parameter(),
            expected,
            found,
        });
    }
    Ok(())
}

fn update<T: ParamElement, A: Algorithm>(
    options: &A,
    param: &Param,
    gradient: &Tensor,
    state: &mut Option<State>,
    scale: f64,
) -> Result<()> {
    let updated = param.update(|before| {
        // The copy becomes the new value.
        let mut value = T::widen(with_elements(before, <[T]>::to_vec)?);
        let state = state.get_or_insert_with(|| State::new::<T::Element>(options, value.len()));
        with_elements(gradient, |gradient: &[T]| {
            if let Some((count, slots)) = state.next() {
                options.update(
                    Step { count, scale },
                    &mut value,
                    &T::widen_slice(gradient),
                    slots,
                );
            }
        })?;
        Ok(Var::from_vec(T::narrow(value), before.shape(), before.device())?)
    });
    updated.map(drop)
}
