//! Options: which make sense, and how they travel.

use std::fmt::Debug;

use telegrad_optim::{
    Adadelta, Adagrad, Adam, AdamW, Adamax, Algorithm, Anneal, CosineAnnealingLr, LinearLr, OneCycleLr,
    RMSprop, Rprop, Schedule, Sgd, StepLr, WarmUp,
};
use telegrad_wire::{Decoder, Encoder, Wire};

#[track_caller]
fn refused(check: telegrad_rpc::Result<()>, text: &str) {
    let error = check.expect_err(text);
    assert!(error.optim().is_some());
    assert_eq!(error.to_string(), text);
}

#[test]
fn defaults_make_sense() {
    Sgd::default().check().unwrap();
    Adam::default().check().unwrap();
    AdamW::default().check().unwrap();
    Adamax::default().check().unwrap();
    Adagrad::default().check().unwrap();
    Adadelta::default().check().unwrap();
    RMSprop::default().check().unwrap();
    Rprop::default().check().unwrap();
    LinearLr::default().check().unwrap();
}

#[test]
fn sgd_is_checked() {
    let default = Sgd::default;
    let nesterov = "sgd: `nesterov` needs `momentum`, and goes without `dampening`";
    refused(
        Sgd {
            lr: -0.5,
            ..default()
        }
        .check(),
        "sgd: `lr` is -0.5, but must be finite and not negative",
    );
    refused(
        Sgd {
            lr: f64::NAN,
            ..default()
        }
        .check(),
        "sgd: `lr` is NaN, but must be finite and not negative",
    );
    refused(
        Sgd {
            momentum: -1.0,
            ..default()
        }
        .check(),
        "sgd: `momentum` is -1, but must be finite and not negative",
    );
    refused(
        Sgd {
            weight_decay: -1.0,
            ..default()
        }
        .check(),
        "sgd: `weight_decay` is -1, but must be finite and not negative",
    );
    refused(
        Sgd {
            dampening: f64::NAN,
            ..default()
        }
        .check(),
        "sgd: `dampening` is NaN, but must be finite",
    );
    refused(
        Sgd {
            nesterov: true,
            ..default()
        }
        .check(),
        nesterov,
    );
    refused(
        Sgd {
            nesterov: true,
            momentum: 0.5,
            dampening: 0.1,
            ..default()
        }
        .check(),
        nesterov,
    );
    Sgd {
        nesterov: true,
        momentum: 0.5,
        ..default()
    }
    .check()
    .unwrap();
}

#[test]
fn the_adams_are_checked() {
    let default = Adam::default;
    let beta = "must be at least 0 and less than 1";
    refused(
        Adam {
            betas: (1.0, 0.9),
            ..default()
        }
        .check(),
        &format!("adam: `betas.0` is 1, but {beta}"),
    );
    refused(
        Adam {
            betas: (0.9, -0.1),
            ..default()
        }
        .check(),
        &format!("adam: `betas.1` is -0.1, but {beta}"),
    );
    refused(
        Adam {
            eps: -1.0,
            ..default()
        }
        .check(),
        "adam: `eps` is -1, but must be finite and not negative",
    );
    let adamw = AdamW {
        weight_decay: -1.0,
        ..AdamW::default()
    };
    refused(
        adamw.check(),
        "adamw: `weight_decay` is -1, but must be finite and not negative",
    );
    let adamax = Adamax {
        betas: (0.5, 1.5),
        ..Adamax::default()
    };
    refused(adamax.check(), &format!("adamax: `betas.1` is 1.5, but {beta}"));
    Adam {
        betas: (0.0, 0.0),
        ..default()
    }
    .check()
    .unwrap();
}

#[test]
fn the_others_are_checked() {
    let negative = "must be finite and not negative";
    let adagrad = Adagrad {
        lr_decay: -1.0,
        ..Adagrad::default()
    };
    refused(
        adagrad.check(),
        &format!("adagrad: `lr_decay` is -1, but {negative}"),
    );
    let adagrad = Adagrad {
        initial_accumulator_value: -1.0,
        ..Adagrad::default()
    };
    refused(
        adagrad.check(),
        &format!("adagrad: `initial_accumulator_value` is -1, but {negative}"),
    );
    let adadelta = Adadelta {
        rho: 1.5,
        ..Adadelta::default()
    };
    refused(
        adadelta.check(),
        "adadelta: `rho` is 1.5, but must be from 0 to 1",
    );
    let rmsprop = RMSprop {
        alpha: -1.0,
        ..RMSprop::default()
    };
    refused(
        rmsprop.check(),
        &format!("rmsprop: `alpha` is -1, but {negative}"),
    );
    let rmsprop = RMSprop {
        momentum: -1.0,
        ..RMSprop::default()
    };
    refused(
        rmsprop.check(),
        &format!("rmsprop: `momentum` is -1, but {negative}"),
    );
    let rprop = Rprop {
        etas: (1.0, 1.2),
        ..Rprop::default()
    };
    refused(rprop.check(), "rprop: `etas.0` is 1, but must be between 0 and 1");
    let rprop = Rprop {
        etas: (0.5, 1.0),
        ..Rprop::default()
    };
    refused(
        rprop.check(),
        "rprop: `etas.1` is 1, but must be finite and more than 1",
    );
    let rprop = Rprop {
        step_sizes: (2.0, 1.0),
        ..Rprop::default()
    };
    refused(
        rprop.check(),
        "rprop: the smallest of `step_sizes` is more than the largest",
    );
}

#[test]
fn schedules_are_checked() {
    refused(
        StepLr::new(0).check(),
        "step_lr: `step_size` is 0, but must be at least 1",
    );
    refused(
        CosineAnnealingLr::new(0).check(),
        "cosine_annealing_lr: `t_max` is 0, but must be at least 1",
    );
    let linear = LinearLr {
        start_factor: 0.0,
        ..LinearLr::default()
    };
    refused(
        linear.check(),
        "linear_lr: `start_factor` is 0, but must be more than 0 and at most 1",
    );
    let warm_up = WarmUp {
        first: linear,
        then: StepLr::new(3),
    };
    refused(
        warm_up.check(),
        "linear_lr: `start_factor` is 0, but must be more than 0 and at most 1",
    );
    let warm_up = WarmUp {
        first: LinearLr::default(),
        then: StepLr::new(0),
    };
    refused(
        warm_up.check(),
        "step_lr: `step_size` is 0, but must be at least 1",
    );
    let cycle = OneCycleLr {
        pct_start: 1.5,
        ..OneCycleLr::new(0.1, 10)
    };
    refused(
        cycle.check(),
        "one_cycle_lr: `pct_start` is 1.5, but must be from 0 to 1",
    );
    let cycle = OneCycleLr {
        div_factor: 0.0,
        ..OneCycleLr::new(0.1, 10)
    };
    refused(
        cycle.check(),
        "one_cycle_lr: `div_factor` is 0, but must be finite and more than 0",
    );
    refused(
        OneCycleLr::new(0.1, 0).check(),
        "one_cycle_lr: `total_steps` is 0, but must be at least 1",
    );
}

#[test]
fn schedules_have_a_learning_rate_for_every_step() {
    let schedules: [&dyn Schedule; 9] = [
        &StepLr::new(1),
        &StepLr::new(u64::MAX),
        &CosineAnnealingLr::new(1),
        &CosineAnnealingLr::new(u64::MAX),
        &LinearLr::default(),
        &OneCycleLr::new(0.1, 1),
        &OneCycleLr {
            pct_start: 0.0,
            ..OneCycleLr::new(0.1, 10)
        },
        &OneCycleLr {
            pct_start: 1.0,
            three_phase: true,
            ..OneCycleLr::new(0.1, 10)
        },
        &OneCycleLr {
            pct_start: 0.1,
            anneal: Anneal::Linear,
            ..OneCycleLr::new(0.1, 10)
        },
    ];
    for (index, schedule) in schedules.iter().enumerate() {
        schedule.check().unwrap();
        for step in (0..20).chain([1 << 40, u64::MAX]) {
            let lr = schedule.lr(0.1, step);
            assert!(
                (-1e-15..=0.1 + 1e-15).contains(&lr),
                "schedule {index} at {step}: {lr}"
            );
        }
    }
    // After the last step nothing changes any more.
    let cycle = OneCycleLr::new(0.1, 10);
    assert_eq!(cycle.lr(0.1, 9), cycle.lr(0.1, 1000));
}

fn travels<T: Wire + serde::Serialize + serde::de::DeserializeOwned + PartialEq + Debug>(value: T) {
    let mut encoder = Encoder::new();
    value.encode(&mut encoder);
    let body = encoder.finish().unwrap().body;
    let mut decoder = Decoder::new(&body);
    assert_eq!(T::decode(&mut decoder).unwrap(), value);
    decoder.finish().unwrap();
    let text = serde_json::to_string(&value).unwrap();
    assert_eq!(serde_json::from_str::<T>(&text).unwrap(), value);
}

#[test]
fn options_travel_and_are_written_as_they_are() {
    // A number that is only itself if every digit counts.
    let lr = 0.1 + 0.2;
    travels(Sgd {
        lr,
        momentum: 0.9,
        nesterov: true,
        ..Sgd::default()
    });
    travels(Adam {
        lr,
        amsgrad: true,
        ..Adam::default()
    });
    travels(AdamW {
        lr,
        maximize: true,
        ..AdamW::default()
    });
    travels(Adamax {
        lr,
        ..Adamax::default()
    });
    travels(Adagrad {
        lr,
        ..Adagrad::default()
    });
    travels(Adadelta {
        lr,
        ..Adadelta::default()
    });
    travels(RMSprop {
        lr,
        centered: true,
        ..RMSprop::default()
    });
    travels(Rprop {
        lr,
        ..Rprop::default()
    });
    travels(OneCycleLr {
        anneal: Anneal::Linear,
        ..OneCycleLr::new(lr, 3)
    });
    travels(WarmUp {
        first: LinearLr::default(),
        then: CosineAnnealingLr::new(7),
    });
    travels(StepLr::new(3));
}

#[test]
fn a_file_of_options_may_leave_out_and_not_misspell() {
    let adam: Adam = serde_json::from_str(r#"{"lr": 0.5}"#).unwrap();
    assert_eq!(
        adam,
        Adam {
            lr: 0.5,
            ..Adam::default()
        }
    );
    let error = serde_json::from_str::<Adam>(r#"{"beta": 0.5}"#).unwrap_err();
    assert!(error.to_string().contains("unknown field `beta`"), "{error}");
}
