"""ALFWorld's household games, in rooms that are drawn from a seed.

ALFWorld's package has the rules, the language, the goals and the floor plans. It takes the initial
positions of things from a download; here they are drawn from a seed instead. Only the process that
plays imports these modules: ALFWorld depends on packages under the GPL.
"""
