//! Nematus' parameter names, as used by Theano-era Nematus, Amun and Marian's types `amun` and
//! `nematus`, to Marian's own.

use crate::marian::stored::Stored;

/// A parameter that only such files have.
const MARK: &str = "decoder_c_tt";

/// Whether a file's parameters have Nematus' names.
pub(crate) fn has_nematus_names(stored: &Stored) -> bool {
    stored.has(MARK) || stored.has("ff_state_W")
}

/// Gives the parameters of such a file Marian's names, and drops everything else.
pub(crate) fn rename(stored: &mut Stored) {
    if !has_nematus_names(stored) {
        return;
    }
    // A table shared by both sides keeps its name.
    let apart = stored.has("Wemb_dec");
    stored.rename(|name| match name {
        MARK | "uidx" | "history_errs" | "zipped_params" => None,
        "Wemb" if apart => Some("encoder_Wemb".into()),
        _ => Some(marian_name(name)),
    });
}

fn marian_name(name: &str) -> String {
    if name == "Wemb_dec" {
        return "decoder_Wemb".into();
    }
    if name.starts_with("decoder_cell") || name.starts_with("decoder_att_") {
        return name.into();
    }
    for (theirs, ours) in [("encoder_r_", "encoder_bi_r"), ("encoder_", "encoder_bi")] {
        if let Some(rest) = name.strip_prefix(theirs) {
            return transition(rest, "_drt_", 1).map_or_else(
                || format!("{ours}_{rest}"),
                |(rest, j)| format!("{ours}_cell{j}_{rest}"),
            );
        }
    }
    if let Some(rest) = name.strip_prefix("ff_state_") {
        return format!("decoder_ff_state_{rest}");
    }
    if let Some(rest) = name.strip_prefix("ff_logit_l1_") {
        return format!("decoder_ff_logit_l1_{rest}");
    }
    for (i, part) in ["prev", "lstm", "ctx"].into_iter().enumerate() {
        if let Some(rest) = name.strip_prefix(&format!("ff_logit_{part}_")) {
            return format!("decoder_ff_logit_l1_{rest}{i}");
        }
    }
    if let Some(rest) = name.strip_prefix("ff_logit_") {
        return format!("decoder_ff_logit_l2_{rest}");
    }
    if let Some(rest) = name.strip_prefix("decoder_2_") {
        return format!("decoder_cell2_{rest}");
    }
    match name.strip_prefix("decoder_") {
        Some(rest) => in_decoder(rest),
        None => name.into(),
    }
}

/// Splits `X_drt_k` into X and the number of its cell; the suffix of a norm is moved to X.
fn transition(rest: &str, mark: &str, before: usize) -> Option<(String, usize)> {
    let (parameter, behind) = rest.split_once(mark)?;
    let (number, norm) = match behind.split_once('_') {
        Some((number, norm)) => (number, format!("_{norm}")),
        None => (behind, String::new()),
    };
    Some((format!("{parameter}{norm}"), number.parse::<usize>().ok()? + before))
}

fn in_decoder(rest: &str) -> String {
    const ATTENTION: [&str; 4] = ["W_comb_att", "Wc_att", "b_att", "U_att"];
    if ATTENTION.iter().any(|name| rest.starts_with(name)) {
        return format!("decoder_{rest}");
    }
    if let Some((parameter, cell)) = transition(rest, "_nl_drt_", 2) {
        return format!("decoder_cell{cell}_{parameter}");
    }
    for (theirs, ours) in [("Wcx", "Wx"), ("Wc", "W")] {
        if rest == theirs || rest.starts_with(&format!("{theirs}_")) {
            return format!("decoder_cell2_{ours}{}", &rest[theirs.len()..]);
        }
    }
    match rest.split_once("_nl") {
        Some((parameter, norm)) => format!("decoder_cell2_{parameter}{norm}"),
        None => format!("decoder_cell1_{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nematus_names_become_marians() {
        for (nematus, marian) in [
            ("encoder_W", "encoder_bi_W"),
            ("encoder_r_bx", "encoder_bi_r_bx"),
            ("encoder_U_drt_1", "encoder_bi_cell2_U"),
            ("encoder_U_drt_1_lnb", "encoder_bi_cell2_U_lnb"),
            ("encoder_r_bx_drt_2", "encoder_bi_r_cell3_bx"),
            ("encoder_gamma1", "encoder_bi_gamma1"),
            ("decoder_W", "decoder_cell1_W"),
            ("decoder_W_lns", "decoder_cell1_W_lns"),
            ("decoder_Wc", "decoder_cell2_W"),
            ("decoder_Wcx", "decoder_cell2_Wx"),
            ("decoder_Wc_lns", "decoder_cell2_W_lns"),
            ("decoder_Wc_att", "decoder_Wc_att"),
            ("decoder_Wc_att_lnb", "decoder_Wc_att_lnb"),
            ("decoder_U_att", "decoder_U_att"),
            ("decoder_U_nl", "decoder_cell2_U"),
            ("decoder_U_nl_lns", "decoder_cell2_U_lns"),
            ("decoder_Ux_nl_drt_1", "decoder_cell3_Ux"),
            ("decoder_bx_nl_drt_2", "decoder_cell4_bx"),
            ("decoder_cell2_gamma1", "decoder_cell2_gamma1"),
            ("decoder_att_gamma2", "decoder_att_gamma2"),
            ("decoder_Wm", "decoder_cell1_Wm"),
            ("decoder_2_Um", "decoder_cell2_Um"),
            ("ff_state_ln_s", "decoder_ff_state_ln_s"),
            ("ff_logit_prev_W", "decoder_ff_logit_l1_W0"),
            ("ff_logit_ctx_ln_b", "decoder_ff_logit_l1_ln_b2"),
            ("ff_logit_l1_gamma1", "decoder_ff_logit_l1_gamma1"),
            ("ff_logit_W", "decoder_ff_logit_l2_W"),
            ("ff_logit_b", "decoder_ff_logit_l2_b"),
        ] {
            assert_eq!(marian_name(nematus), marian);
        }
    }
}
