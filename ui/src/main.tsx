// The page's beginning.
import { render } from "preact";
import { start } from "./app/load";
import { startTitle } from "./app/sharing/title";
import { Shell } from "./app/shell";
import { startTheme } from "./app/theme";
import "./styles/theme.css";
import "./styles/base.css";
import "./styles/shell.css";

startTheme();
startTitle();
render(<Shell />, document.getElementById("app")!);
void start();
