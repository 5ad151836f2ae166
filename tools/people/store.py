"""The pending items in the database, and their changes of state.

Each change is one statement that names the states it starts from. So of two concurrent answers
the first wins, even from different threads or processes. All methods block.
"""

import json
import sqlite3
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from caesura.tools.people import owner as leases
from caesura.tools.people.database import INSERT, ITEM, MAX_BYTES, Database
from caesura.tools.people.pending import UNSETTLED, NoAnswer, Pending, State


class Store:
    """The items of all users of a file; those of users that have ended are orphaned.

    A user that renews its lease (`renew`) counts as alive, wherever it runs. path: None keeps the
    items in memory.
    """

    def __init__(
        self, path: Path | None, *, max_items: int = 1000, max_bytes: int = MAX_BYTES
    ) -> None:
        self.owner = leases.new_owner()
        self.is_shared = path is not None
        """Whether other processes may answer our items."""
        self._db = Database(path, max_bytes)
        self._max_items = max_items

    @property
    def trouble(self) -> str | None:
        """Why the items are in memory and not in the file; None: no problem."""
        return self._db.trouble

    def claim(self, item: Pending, identity: str, refused: str = "") -> Pending:
        """Store an item that a run waits for, or return the known one for the same question.

        An answer that no run has had is returned once. An orphaned item becomes ours: open, with
        this session and deadline. Raises NoAnswer where too many items are open, and for a new item
        if `refused` says why its client may open none.
        """
        known = self._find(identity, item) if identity else None
        if known is not None:
            return known
        if refused:
            raise NoAnswer(refused)
        count = f'SELECT count(*) FROM items WHERE "state" IN ({_placeholders(UNSETTLED)})'
        if self._db.run(lambda db: db.execute(count, UNSETTLED).fetchone()[0]) >= self._max_items:
            raise NoAnswer("too many questions wait for people; continue without an answer")
        values = {**_row(item), "identity": identity, "owner": self.owner, "taken": 0}
        self._db.run(lambda db: db.execute(INSERT, list(values.values())))
        return item

    def settle(
        self,
        item_id: str,
        state: State,
        *,
        answer: str | None = None,
        approved: bool | None = None,
        who: str = "",
        taken: bool = False,
        of: Collection[State] = UNSETTLED,
    ) -> Pending | None:
        """Change an item from a state in `of` and return it; None: it is in another state.

        Another live user's open item can be answered, which that user finds by `news`. taken: the
        waiting run has the answer.
        """
        theirs = '"state" = \'open\' AND "owner" != ?'
        change = (
            'UPDATE items SET "state" = ?, "answer" = ?, "approved" = ?, "who" = ?,'
            f' "taken" = CASE WHEN {theirs} THEN 3 ELSE ? END'
            f' WHERE "id" = ? AND "state" IN ({_placeholders(of)})'
            f" AND (? = 'answered' OR NOT ({theirs})) RETURNING *"
        )
        said = (state, answer, approved, who, self.owner, int(taken))
        return self._one(change, (*said, item_id, *of, state, self.owner))

    def news(self, ids: Collection[str]) -> list[Pending]:
        """Return those of our open items that another user has settled, and take their answers.

        An item that another user took for orphaned becomes ours again.
        """
        chosen = f'"id" IN ({_placeholders(ids)}) AND "owner" = ?'
        values = (*ids, self.owner)
        again = f"UPDATE items SET \"state\" = 'open' WHERE \"state\" = 'orphaned' AND {chosen}"
        self._db.run(lambda db: db.execute(again, values))
        self._db.run(
            lambda db: db.execute(
                f'UPDATE items SET "taken" = 1 WHERE "taken" = 3 AND {chosen}', values
            )
        )
        query = f"SELECT * FROM items WHERE \"state\" != 'open' AND {chosen}"
        return self._all(query, values)

    def renew(self, now: float) -> None:
        """Let this user count as alive for a while."""
        self._db.run(lambda db: leases.renew(db, self.owner, now))

    def get(self, item_id: str) -> Pending | None:
        """Return the item of that id, or None."""
        return self._one('SELECT * FROM items WHERE "id" = ?', (item_id,))

    def listed(self, states: Collection[State]) -> list[Pending]:
        """Return items in these states, oldest first, also those of other users."""
        query = f'SELECT * FROM items WHERE "state" IN ({_placeholders(states)})'
        return self._all(f'{query} ORDER BY "created", "id"', states)

    def finish(self, session: str) -> None:
        """Mark the answers of an ended session as used, so that they are not returned again."""
        change = 'UPDATE items SET "taken" = 2 WHERE "session" = ? AND "taken" = 1'
        self._db.run(lambda db: db.execute(change, (session,)))

    def next_deadline(self) -> float | None:
        """Return the earliest deadline of an orphaned item."""
        query = 'SELECT min("deadline") FROM items WHERE "state" = \'orphaned\''
        found = self._db.run(lambda db: db.execute(query).fetchone()[0])
        return None if found is None else float(found)

    def sweep(self, now: float, oldest: float) -> list[Pending]:
        """Orphan the items of ended processes, expire items, delete old ones; return the changed.

        Settled items created before `oldest` are deleted, and the oldest beyond the number of
        items to keep.
        """
        changed = [item for owner in self._gone(now) for item in self._orphan(owner)]
        expire = (
            'UPDATE items SET "state" = \'expired\', "answer" = "default"'
            ' WHERE "state" = \'orphaned\' AND "deadline" <= ? RETURNING *'
        )
        changed += self._all(expire, (now,))
        settled = f'"state" NOT IN ({_placeholders(UNSETTLED)})'
        surplus = (
            f'DELETE FROM items WHERE {settled} AND ("created" < ? OR "id" NOT IN (SELECT "id"'
            f' FROM items WHERE {settled} ORDER BY "created" DESC LIMIT ?))'
        )
        values = (*UNSETTLED, oldest, *UNSETTLED, self._max_items)
        self._db.run(lambda db: db.execute(surplus, values))
        return changed

    def leave(self) -> list[Pending]:
        """Orphan our open items before our runs end, so that they can still be answered."""
        orphaned = self._orphan(self.owner)
        self._db.run(lambda db: leases.end_lease(db, self.owner))
        return orphaned

    def close(self) -> None:
        """Close the file. The next use opens it again."""
        self._db.close()

    def _find(self, identity: str, item: Pending) -> Pending | None:
        return self._one(
            'UPDATE items SET "taken" = 1, "session" = ?, "owner" = ? WHERE "id" = (SELECT "id"'
            ' FROM items WHERE "identity" = ? AND "state" = \'answered\' AND "taken" = 0 LIMIT 1)'
            " RETURNING *",
            (item.session, self.owner, identity),
        ) or self._one(
            'UPDATE items SET "state" = \'open\', "owner" = ?, "session" = ?, "deadline" = ?'
            ' WHERE "id" = (SELECT "id" FROM items WHERE "identity" = ? AND "state" = \'orphaned\''
            " LIMIT 1) RETURNING *",
            (self.owner, item.session, item.deadline, identity),
        )

    def _gone(self, now: float) -> list[str]:
        """Return the other users of the file that have ended and left items."""
        query = 'SELECT DISTINCT "owner" FROM items WHERE "state" = \'open\' OR "taken" IN (1, 3)'

        def gone(db: sqlite3.Connection) -> list[str]:
            owners = [row[0] for row in db.execute(query) if row[0] != self.owner]
            return [owner for owner in owners if leases.is_gone(db, owner, now)]

        return self._db.run(gone)

    def _orphan(self, owner: str) -> list[Pending]:
        # An answer to a question can serve the run that asks again after its own run died. An
        # approval can if its run has not read it: otherwise its call may have been made.
        again = (
            'UPDATE items SET "taken" = CASE WHEN "kind" = \'question\' OR "taken" = 3 THEN 0'
            ' ELSE 2 END WHERE "owner" = ? AND "taken" IN (1, 3)'
        )
        self._db.run(lambda db: db.execute(again, (owner,)))
        # An approval without an identity cannot match any later run.
        change = (
            'UPDATE items SET "state" = CASE WHEN "kind" = \'approval\' AND "identity" = \'\''
            " THEN 'cancelled' ELSE 'orphaned' END"
            ' WHERE "owner" = ? AND "state" = \'open\' RETURNING *'
        )
        return self._all(change, (owner,))

    def _one(self, statement: str, values: Iterable[Any]) -> Pending | None:
        found = self._all(statement, values)
        return found[0] if found else None

    def _all(self, statement: str, values: Iterable[Any]) -> list[Pending]:
        return self._db.run(lambda db: [_item(row) for row in db.execute(statement, tuple(values))])


def _row(item: Pending) -> dict[str, Any]:
    return {name: getattr(item, name) for name in ITEM} | {"options": json.dumps(item.options)}


def _item(row: sqlite3.Row) -> Pending:
    data = {name: row[name] for name in ITEM}
    data["options"] = tuple(json.loads(data["options"]))
    data["tenant"] = data["tenant"] or ""  # a program of before the column leaves it out
    data["approved"] = None if data["approved"] is None else bool(data["approved"])
    return Pending(**data)


def _placeholders(values: Collection[object]) -> str:
    return ", ".join("?" * len(values))
