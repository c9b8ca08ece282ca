//! A language model on three workers: embedding, LSTM and decoder each on its own.
//!
//! ```sh
//! cargo run --release --example rnn
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use telegrad::nn::{Embedding, Linear, Lstm, Rng};
use telegrad::prelude::*;

const TEXT: &str = include_str!("../data/lighthouse.txt");

const WIDTH: usize = 16;
const HIDDEN: usize = 96;
/// Length of the context of a prediction, in characters.
const TIME: usize = 32;
const BATCH: usize = 16;
const STEPS: usize = 250;

#[remote]
fn embedding(characters: usize) -> Result<AnyModule> {
    Ok(AnyModule::new(Embedding::new(
        characters,
        WIDTH,
        &mut Rng::new(1),
    )?))
}

#[remote]
fn lstm() -> Result<AnyModule> {
    Ok(AnyModule::new(Lstm::new(WIDTH, HIDDEN, 1, &mut Rng::new(2))?))
}

#[remote]
fn decoder(characters: usize) -> Result<AnyModule> {
    Ok(AnyModule::new(Linear::new(HIDDEN, characters, &mut Rng::new(3))?))
}

fn main() -> Result<()> {
    let name = telegrad::launch::world_of(&["trainer", "words", "memory", "voice"])?;
    let world = telegrad::init(&name)?;
    if name != "trainer" {
        return world.serve();
    }
    train(&world)?;
    world.shutdown()
}

/// The text as numbers.
struct Corpus {
    alphabet: Vec<char>,
    text: Vec<u32>,
}

impl Corpus {
    fn new() -> Self {
        let mut alphabet: Vec<char> = TEXT.chars().collect();
        alphabet.sort_unstable();
        alphabet.dedup();
        let text = TEXT.chars().filter_map(|c| alphabet.binary_search(&c).ok());
        let text = text.map(|number| number as u32).collect();
        Self { alphabet, text }
    }

    /// Sections of the text, `[time, batch]`, with the next character of each character.
    fn batch(&self, rng: &mut Rng) -> Result<(Tensor, Tensor)> {
        let starts: Vec<usize> = (0..BATCH)
            .map(|_| rng.next_u64() as usize % (self.text.len() - TIME - 1))
            .collect();
        let at = |offset: usize| -> Result<Tensor> {
            let numbers: Vec<u32> = (0..TIME)
                .flat_map(|time| starts.iter().map(move |start| start + time + offset))
                .map(|place| self.text[place])
                .collect();
            Ok(Tensor::from_vec(numbers, (TIME, BATCH), &Device::Cpu)?)
        };
        Ok((at(0)?, at(1)?))
    }
}

fn train(world: &World) -> Result<()> {
    let corpus = Corpus::new();
    let characters = corpus.alphabet.len();
    let model = RemoteSequential::new()
        .push(RemoteModule::new(world, "words", embedding, (characters,))?)
        .push(RemoteModule::new(world, "memory", lstm, ())?)
        .push(RemoteModule::new(world, "voice", decoder, (characters,))?);
    let adam = Adam {
        lr: 5e-3,
        ..Adam::default()
    };
    let optimizer = DistributedOptimizer::new(world, model.remote_parameters()?, adam)?.with_max_norm(1.0)?;

    println!("{} characters, {characters} different ones", corpus.text.len());
    let mut rng = Rng::new(0);
    let mut losses = Vec::new();
    for step in 1..=STEPS {
        let (x, next) = corpus.batch(&mut rng)?;
        let loss = world.context(|context| {
            let logits = model.forward(&x)?.reshape((TIME * BATCH, characters))?;
            let loss = nn::cross_entropy(&logits, &next.flatten_all()?)?;
            context.backward(&loss)?;
            optimizer.step(context)?;
            Ok(loss.to_scalar::<f32>()?)
        })?;
        losses.push(loss);
        if step % 50 == 0 {
            println!("step {step:>3}: loss {loss:.3}");
        }
    }
    let (first, last) = (mean(&losses[..10]), mean(&losses[STEPS - 10..]));
    println!("loss from {first:.3} to {last:.3}");
    assert!(last < 0.7 * first);

    let said = say(&model, &corpus, "The ", 80)?;
    println!("it says: {said}");
    Ok(())
}

/// Continues a text with the most likely characters.
fn say(model: &RemoteSequential, corpus: &Corpus, start: &str, length: usize) -> Result<String> {
    let mut said: Vec<u32> = start
        .chars()
        .filter_map(|c| corpus.alphabet.binary_search(&c).ok())
        .map(|number| number as u32)
        .collect();
    for _ in 0..length {
        let past = &said[said.len().saturating_sub(TIME)..];
        let x = Tensor::from_slice(past, (past.len(), 1), &Device::Cpu)?;
        let logits = model.forward(&x)?;
        said.push(logits.get(past.len() - 1)?.get(0)?.argmax(0)?.to_scalar()?);
    }
    let characters = said
        .iter()
        .filter_map(|number| corpus.alphabet.get(*number as usize));
    Ok(characters.map(|c| if *c == '\n' { ' ' } else { *c }).collect())
}

fn mean(losses: &[f32]) -> f32 {
    losses.iter().sum::<f32>() / losses.len() as f32
}
