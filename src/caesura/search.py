"""Search among branches of a session: the best of n, a majority's answer, a tree of runs.

async with Agent(tools=[run_tests]) as agent, agent.session() as session:
    async with await best_of(session, "Mend the test.", n=8, score=passed) as best:
        print(best.answer.text)
"""

from caesura.runtime.sdk.search import Candidate, Chosen, best_of, majority, tree_search

__all__ = ["Candidate", "Chosen", "best_of", "majority", "tree_search"]
