"""ALFWorld's household games, on rooms that are drawn here.

ALFWorld's package holds the rules, the language, the goals and the floor plans; what is in which
cupboard at the start it takes from a download. Here that is drawn from a seed instead. Only the
process that plays imports these modules: ALFWorld brings packages under the GPL.
"""
