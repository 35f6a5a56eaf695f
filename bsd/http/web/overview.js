// The first view: what the sessions take, what fills them, and what would leave.

import { fill, h } from "./dom.js";

export async function overviewView(page) {
    fill(page.main, h("h1", null, "Overview"));
    return {};
}
