//! Layers, activations and losses: values against formulas, gradients against finite differences.

mod gradient;
mod activation;
mod linear;
mod conv2d;
mod pool;
mod embedding;
mod norm;
mod dropout;
mod lstm;
mod softmax;
mod loss;
mod init;
mod module;
mod sequential;
mod state_dict;
mod candle;
