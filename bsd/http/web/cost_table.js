// The results of settings as a table and in sentences, for one session and for all of them.

import { columnNames, isInForce, settingCells, settingWords } from "./cost_settings.js";
import { button, h } from "./dom.js";
import { count, dollars, number, thousands } from "./format.js";
import { badge, table } from "./widgets.js";

/** A share of the cost without bsd: 0.79 is “21 % less”. */
export function change(share) {
    if (typeof share !== "number") return "not known";
    const percent = Math.round(100 * Math.abs(1 - share));
    if (!percent) return "the same";
    return `${percent} % ${share < 1 ? "less" : "more"}`;
}

/**
 * A row for each combination of settings; `actions(setting)` returns {config, take}: the settings in
 * force, and a function that takes over these.
 */
export function settingsTable(label, settings, actions, suggestion = null) {
    const lowest = lowestOf(settings);
    const columns = [
        ...columnNames.map((name) => [name, null]),
        ["Cost", "num"],
        ["Tokens", "num"],
        ["Cuts", "num"],
        ["Values left", "num"],
        ["Wanted again", "num"],
        ["", "num"],
    ];
    const rows = settings.map((setting) => {
        const { config, take } = actions(setting);
        const cells = settingCells(setting);
        return [
            ...cells,
            typeof setting.cost === "number"
                ? [dollars(setting.cost), h("span", { class: "note block" }, change(setting.cost_share)), worst(setting)]
                : "not known",
            [thousands(setting.tokens), h("span", { class: "note block" }, change(setting.tokens_share))],
            number(setting.cuts),
            number(setting.left_values),
            again(setting),
            h(
                "span",
                { class: "badges" },
                setting === lowest && badge(setting.cost === null ? "fewest tokens" : "lowest cost", "good"),
                isSuggested(setting, suggestion) && badge("suggested", "good", suggestion.reason),
                isInForce(setting, config)
                    ? badge("in force", "info")
                    : button("Take over…", take, {
                          class: "small writes",
                          "aria-label": `Take over these settings: ${settingWords(setting)}`,
                          title: "Take over these settings",
                          "data-focus": `take ${cells.join(" ")}`,
                      }),
            ),
        ];
    });
    return [
        h(
            "div",
            { class: "scrolls", tabindex: "0", role: "region", "aria-label": `${label}, table` },
            table(label, columns, rows),
        ),
        suggestion &&
            h("p", null, h("strong", null, "Suggested: "), `${settingWords(suggestion.setting)}. ${suggestion.reason}.`),
    ];
}

const isSuggested = (setting, suggestion) =>
    suggestion && Object.entries(suggestion.setting).every(([name, value]) => String(setting[name]) === String(value));

/** The settings with the lowest cost, or the fewest tokens; null if all are the same. */
function lowestOf(settings) {
    const value = ({ cost, tokens }) => cost ?? tokens;
    if (new Set(settings.map(value)).size < 2) return null;
    return settings.reduce((one, other) => (value(other) < value(one) ? other : one));
}

/** The session that gains least, if there are several. */
const worst = ({ cost_share: share, worst_cost_share: most }) =>
    typeof most === "number" && most !== share && h("span", { class: "note block" }, `worst session: ${change(most)}`);

const again = ({ wanted_again: values, wanted_again_tokens: tokens, left_tokens: left }) => [
    number(values),
    values > 0 && left > 0 && h("span", { class: "note block" }, `${((100 * tokens) / left).toFixed(1)} % of the tokens`),
];

/** The result of the settings in force, else of those with the lowest cost, in sentences. */
export function sumsOf({ without }, settings, actions) {
    const lowest = lowestOf(settings);
    const inForce = settings.find((setting) => isInForce(setting, actions(setting).config));
    const shown = inForce ?? lowest ?? settings[0];
    if (!shown) return null;
    const which = inForce ? "the settings in force" : settings.length > 1 ? "the best of these settings" : "these settings";
    const hasCost = typeof without.cost === "number";
    const amount = ({ cost, tokens }) => (hasCost ? dollars(cost) : `${thousands(tokens)} tokens`);
    const less = change(hasCost ? shown.cost_share : shown.tokens_share);
    const again = `${number(shown.wanted_again)} of ${count(shown.left_values, "value")} ${shown.wanted_again === 1 ? "was" : "were"} wanted again`;
    return h(
        "p",
        { class: "cost-sums" },
        h("strong", null, `${amount(without)} without bsd, ${amount(shown)} with ${which}: ${less}`),
        `; ${shown.left_values ? again : "no value left"}.`,
        lowest && lowest !== shown && ` The lowest of these settings: ${amount(lowest)}.`,
    );
}

/** How well the figures are known, and what they leave out. */
export function known({ recorded, without, notes = [] }) {
    const deviation =
        typeof recorded.deviation === "number"
            ? `The estimate of a call differs from the recorded tokens by ${(100 * recorded.deviation).toFixed(1)} % (median).`
            : "The sessions record no tokens: how good the estimate is cannot be told.";
    const unpriced = typeof without.cost !== "number" && "No price is known, so bsd counts tokens and names no money.";
    const scope = "Costs are those of input: input tokens, cache reads and cache writes.";
    return h(
        "ul",
        { class: "plain note" },
        [deviation, unpriced || scope, ...notes].filter(Boolean).map((words) => h("li", null, words)),
    );
}
